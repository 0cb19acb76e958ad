"""What was asked of the peer's process, until it has answered.

A request outlives whoever waits for it. The peer may read and write its memory and ask questions back until it has
answered, whether or not anybody still wants to know; so to cancel a request only says that nobody does, and what
belongs to it is let go when the answer comes, or when the process is gone and there will be none.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from ictp2p.concurrency.interrupts import Answer
from ictp2p.errors import PeerClosed
from ictp2p.handle import to_peer

T = TypeVar("T")


@dataclass(slots=True)
class _Request(Generic[T]):
    kind: Any
    """The type of its answer; None: there is nothing in it."""
    future: Future[T]
    keeps: object
    """Memory that the peer may use until it has answered."""
    last: Callable[[], object] | None
    """Called before the answer is given."""
    after: Callable[[], object] | None
    """Called once the peer has answered, well or not."""


class Requests:
    """All that stand. Asked from any thread, answered in that of the line.

    Args:
        say: sends a request under its number; raises `PeerClosed` in a process that was forked from ours.
        cancel: tells the peer that nobody waits for that number any more; may raise the same.
    """

    def __init__(self, say: Callable[[int, to_peer.ToPeer], None], cancel: Callable[[int], None]) -> None:
        self._say = say
        self._cancel = cancel
        self._numbers = itertools.count(1)
        self._standing: dict[int, _Request[Any]] = {}
        self._process = os.getpid()
        self._lock = threading.RLock()  # reentrant: a signal handler may close the peer in the middle of this
        self.error: PeerClosed | None = None
        """How the process ended, if it has."""

    def number(self) -> int:
        """A number for a request that something must be prepared for before it is asked."""
        return next(self._numbers)

    def ask(
        self,
        message: to_peer.ToPeer,
        kind: Any,
        number: int | None = None,
        *,
        keeps: object = None,
        last: Callable[[], object] | None = None,
        after: Callable[[], object] | None = None,
    ) -> Future[Any]:
        """Ask, and give what will hold the answer. To cancel it tells the peer that nobody waits any more.

        Args:
            message: what is asked.
            kind: the type of the answer; None: there is nothing in it.
            number: one of `number`; None: any.
            keeps: memory that the peer may use until it has answered.
            last: called before the answer is given; if it raises, that is the answer.
            after: called once the peer has answered, well or not, or could not be asked; not if its process ends.

        Raises:
            PeerClosed: the process is gone, or this one is a fork of who asks it.
        """
        if os.getpid() != self._process:  # before the lock, which a thread may have held that was not forked along
            raise PeerClosed(f"the peer belongs to process {self._process}, from which this one was forked")
        number = self.number() if number is None else number
        future: Future[Any] = Answer()
        with self._lock:
            if self.error is not None:
                raise PeerClosed(str(self.error))  # another one: what is kept would keep the frames of each time
            self._standing[number] = _Request(kind, future, keeps, last, after)
        try:
            self._say(number, message)
        except BaseException:
            self._forget(number)
            raise
        future.add_done_callback(lambda done: self._cancelled(number) if done.cancelled() else None)
        return future

    def answered(self, number: int, value: msgspec.Raw) -> None:
        """Take the answer to a request."""
        request = self._standing[number]
        try:
            if request.last is not None:
                request.last()
            found = None if request.kind is None else msgspec.msgpack.decode(value, type=request.kind)
        except Exception as error:
            self._settle(number, error=error)
        else:
            self._settle(number, found)

    def failed(self, number: int, error: Exception) -> None:
        """The peer could not do what was asked."""
        self._settle(number, error=error)

    def refuse(self, error: PeerClosed) -> None:
        """The process is gone: nothing can be asked any more."""
        with self._lock:
            self.error = error

    def end(self, error: PeerClosed) -> None:
        """Give `error` to all who still wait."""
        with self._lock:
            standing, self._standing = self._standing, {}
        for request in standing.values():
            with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
                request.future.set_exception(error)

    def _forget(self, number: int) -> None:
        """What could not be said is asked of nobody; unless the process has ended meanwhile, and `end` was told."""
        with self._lock:
            request = self._standing.pop(number, None)
        if request is not None and request.after is not None:
            request.after()

    def _cancelled(self, number: int) -> None:
        with contextlib.suppress(PeerClosed):
            self._cancel(number)

    def _settle(self, number: int, value: Any = None, error: Exception | None = None) -> None:
        with self._lock:
            request = self._standing.pop(number)
        if request.after is not None:
            request.after()
        with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
            if error is None:
                request.future.set_result(value)
            else:
                request.future.set_exception(error)
