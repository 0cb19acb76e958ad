"""How many threads torch takes for what a thread asks of it.

Torch divides an operation on more than 32768 elements among threads, as many as there are cores if nobody says
otherwise, and each thread that asks has a team of its own. That is for whoever has the cores to itself. A loop that
moves tensors for a training has not: what it asks of a chunk ends when the last of its team has been given a core, and
those who are done spin until then, on cores on which others compute. With codecs that cost two peers on a host of two
cores three times the time, and three times the CPU; an outer step, of thousands of such operations, eighty times
(docs/experiments.md, "Teams of torch"). So a loop computes alone, and what is large is shared among threads of which
each does all that is to be done to its pieces, alone: they wait for each other once, in the end.

OpenMP has that number for each thread. `torch.set_num_threads` sets the asking thread's, and also the one that
threads begin with which have not used torch yet: that one is put back at once, by a thread that ends with it. Who uses
torch for the first time in that instant computes alone as well.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import torch

T = TypeVar("T")
_MOST = 16
"""Threads that share something: they have an interpreter lock and a memory in common, and the loop needs both."""


def compute_alone() -> None:
    """Have torch compute what this thread asks for in this thread. Others keep what they have, and so do those to come.

    Nothing is changed if no thread can be started.
    """
    usual = torch.get_num_threads()
    if usual == 1:
        return
    alone = threading.Event()

    def restore() -> None:
        alone.wait()
        torch.set_num_threads(usual)

    with suppress(RuntimeError):
        restoring = threading.Thread(target=restore, name="ictp2p torch threads", daemon=True)
        restoring.start()
        torch.set_num_threads(1)
        alone.set()
        restoring.join()


def shared(act: Callable[[T], object], pieces: Iterable[T]) -> None:
    """Do something to each piece, in as many threads as torch would take for one operation of this thread.

    Args:
        act: what; to several pieces at a time, in any order. Its first error ends all, and is raised here.
        pieces: of memory that no two of them share.
    """
    left, errors, helpers = deque(pieces), list[BaseException](), list[threading.Thread]()

    def help_out() -> None:
        compute_alone()
        try:
            _each(act, left)
        except BaseException as error:
            errors.append(error)
            left.clear()

    team = min(torch.get_num_threads(), len(left), _MOST)
    try:
        if team < 2 or not _start(helpers, help_out, team):
            _each(act, left)
        for helper in helpers:
            helper.join()
    finally:
        left.clear()  # whoever was interrupted may write to the same memory next, and who has not begun finds nothing
        for helper in helpers:
            with suppress(RuntimeError):
                helper.join()
    for error in errors:
        raise error


def _each(act: Callable[[T], object], left: deque[T]) -> None:
    while (piece := _next(left)) is not None:
        act(piece)


def _next(left: deque[T]) -> T | None:
    try:
        return left.popleft()
    except IndexError:
        return None


def _start(helpers: list[threading.Thread], work: Callable[[], None], count: int) -> bool:
    """Start so many threads, or as many as can be had; whether any could. Each is among `helpers` before it begins."""
    for _ in range(count):
        helpers.append(threading.Thread(target=work, name="ictp2p step", daemon=True))
        try:
            helpers[-1].start()
        except RuntimeError:
            helpers.pop()
            break
    return bool(helpers)
