"""Conditions, events and futures that an interrupt leaves usable: what a training program's threads share with others.

Python runs the handlers of signals in the main thread, between two bytecodes, and what they raise (KeyboardInterrupt,
by default) is raised there. A `with` that takes a lock of the interpreter's own leaves no bytecode between the lock and
the block that gives it back. The standard library's `Condition` does: its `__enter__` is written in Python, and an
interrupt that comes into its last step leaves the lock taken for ever. Each `concurrent.futures.Future` has such a
condition, so an interrupt of whoever waits for an answer could leave its future locked, and the peer's thread stood
still when it came to answer: with it the peer, and whoever closed that.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Condition(threading.Condition):
    """As `threading.Condition`; whatever is raised in whoever uses it, its lock is free again when that has left it."""

    _lock: Any
    _waiters: Any

    @property
    def __enter__(self) -> Callable[[], bool]:
        """The lock's own, which is looked up before the lock is taken."""
        taking: Callable[[], bool] = self._lock.__enter__
        return taking

    @property
    def __exit__(self) -> Callable[..., None]:
        """The lock's own, which is looked up at the same time."""
        giving_back: Callable[..., None] = self._lock.__exit__
        return giving_back

    def wait(self, timeout: float | None = None) -> bool:
        """Let go until told, or for so many seconds; whether it was told."""
        waiter, told, held = threading.Lock(), False, list[Any]()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            held.extend(map(operator.call, (self._lock._release_save,)))  # one step: the lock is free, and we know it
            told = waiter.acquire(timeout=_countable(timeout))
        finally:
            for state in held:
                self._lock._acquire_restore(state)
            if not told:
                with suppress(ValueError):  # it was told at the last moment, or never waited
                    self._waiters.remove(waiter)
        return told


class Event:
    """As `threading.Event`, but once set it stays so; a handler may set, or wait for, what its thread waits for.

    It has no lock that anybody could leave taken, and makes none before somebody waits: each call of a torch group has
    two of them. Whoever waits is in the list before it looks once more, and whoever sets looks into the list last.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiting = deque[threading.Lock]()

    def is_set(self) -> bool:
        """Whether it is."""
        return self._is_set

    def set(self) -> None:
        """Let go whoever waits, from now on."""
        self._is_set = True
        try:
            while True:
                self._waiting.pop().release()
        except IndexError:  # there is nobody else, or another thread sets it too
            pass

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, or for so many seconds; whether it was set by then."""
        if self._is_set:
            return True
        waiter, told = threading.Lock(), False
        waiter.acquire()
        self._waiting.append(waiter)
        try:
            told = self._is_set or waiter.acquire(timeout=_countable(timeout))
        finally:
            if not told:
                with suppress(ValueError):  # it is told at the last moment
                    self._waiting.remove(waiter)
        return told


class Answer(Future[T]):
    """As `concurrent.futures.Future`, with such a condition."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()


def _countable(timeout: float | None) -> float:
    """So many seconds, as a lock takes them."""
    return -1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)
