"""How many threads torch takes for what a thread asks of it, and how it rounds.

Torch divides an operation on more than 32768 elements among threads, as many as there are cores if nobody says
otherwise, and each thread that asks has a team of its own. That is for whoever has the cores to itself. A loop that
moves tensors for a training has not: what it asks of a chunk ends when the last of its team has been given a core, and
those who are done spin until then, on cores on which others compute. With codecs that cost two peers on a host of two
cores three times the time, and three times the CPU; an outer step, of thousands of such operations, eighty times
(docs/experiments.md, "Teams of torch"). So a loop computes alone, and what is large is shared among threads of which
each does all that is to be done to its pieces, alone: they wait for each other once, in the end.

It also says what comes out. A sum is of as many parts as there are threads, each rounded by itself, and where a part
ends a power may be rounded otherwise than in its midst; so two hosts that differ in nothing but their cores may compute
different bits. What must be equal everywhere is therefore computed alone as well. And it is computed with subnormal
numbers, next to zero: a thread may be set to take them for zero, by `torch.set_flush_denormal` or a library that was
built with `-ffast-math`, and those that it starts inherit that. Of what is not trained any more the momentum becomes
subnormal some eight hundred outer steps later, so a mesh in which one host flushed them would agree for weeks, and then
no more.

OpenMP has that number for each thread. `torch.set_num_threads` sets the asking thread's, and also the one that
threads begin with which have not used torch yet: that one is put back at once, by a thread that ends with it. Who uses
torch for the first time in that instant computes alone as well.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")
_ONE = np.float32(1.0)
_SUBNORMAL = np.float32(1e-40)
_MOST = 16
"""Threads that share something: they have an interpreter lock and a memory in common, and the loop needs both."""

Job = tuple[Callable[..., object], Sequence[Tensor]]
"""Something to do, and the tensors that it takes, in that order."""


def compute_alone() -> None:
    """Have torch compute what this thread asks for in this thread. Others keep what they have, and so do those to come.

    It does so with subnormal numbers from now on. The team stays if no thread can be started.
    """
    torch.set_flush_denormal(False)
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


def each_alone(jobs: Iterable[Job], most: int = _MOST) -> None:
    """Do each job in a thread that computes alone: what comes out depends neither on the cores nor on this thread.

    As many are done at a time as this process may use cores, whatever torch would take: it takes one where
    `OMP_NUM_THREADS` says so, as torchrun does for every program that does not.

    Args:
        jobs: to be done in any order, and without gradients. They write to no memory that another one reads or writes.
            The first error ends all, and is raised here.
        most: so many threads at most. Where none can be started it is all done here.
    """
    left, errors, helpers = deque(jobs), list[BaseException](), list[threading.Thread]()

    def help_out() -> None:
        compute_alone()
        try:
            _each(left)
        except BaseException as error:
            errors.append(error)
            left.clear()

    team = min(_cores(), len(left), most, _MOST)
    try:
        suits = team < 2 and torch.get_num_threads() == 1 and not flushes()
        if suits or not _start(helpers, help_out, team):
            _each(left)
        for helper in helpers:
            helper.join()
    finally:
        left.clear()  # whoever was interrupted may write to the same memory next, and who has not begun finds nothing
        for helper in helpers:
            with suppress(RuntimeError):
                helper.join()
    for error in errors:
        raise error


def exactly(act: Callable[[], T]) -> T:
    """Do something with subnormal numbers: in this thread, unless it takes them for zero."""
    if not flushes():
        return act()
    results = list[T]()
    each_alone([(lambda: results.append(act()), ())])
    return results[0]


def flushes() -> bool:
    """Whether this thread takes subnormal numbers for zero."""
    return not _SUBNORMAL * _ONE


@torch.no_grad()
def _each(left: deque[Job]) -> None:
    while (job := _next(left)) is not None:
        act, tensors = job
        act(*tensors)


def _next(left: deque[Job]) -> Job | None:
    try:
        return left.popleft()
    except IndexError:
        return None


def _start(helpers: list[threading.Thread], work: Callable[[], None], count: int) -> bool:
    """Start so many threads, or as many as can be had; whether any could. Each is among `helpers` before it begins."""
    for _ in range(count):
        helpers.append(threading.Thread(target=work, name="ictp2p helper", daemon=True))
        try:
            helpers[-1].start()
        except RuntimeError:
            helpers.pop()
            break
    return bool(helpers)


def _cores() -> int:
    """How many this process may use: where it is bound to some of them, as by Slurm or `taskset`, those."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
