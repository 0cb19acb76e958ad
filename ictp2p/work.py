"""A call under way, and the thread that runs calls one after the other.

Collectives of one worker have to happen in one order, the same everywhere, so one thread runs them and everybody else
waits on a `Work`. It is a daemon of our own instead of an executor of the standard library: that one is joined when
the interpreter ends, so a script that dies without closing its peer would hang on a collective nobody will answer.

**After a call that failed nothing runs that its caller asked for before it knew.** Clusters make the same calls in the
same order, and the others may still be at the one that failed here: the next one would be added to it, and nobody
would notice. So what was queued until a failure has been heard of (`Work.wait`) fails with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, Generic, SupportsFloat, TypeVar

from ictp2p.concurrency.interrupts import Answer
from ictp2p.concurrency.threads import Inbox
from ictp2p.errors import ConfigError, PeerClosed, RoundAborted, shown
from ictp2p.handle import Handle

T = TypeVar("T")


class Work(Generic[T]):
    """The pending result of a call with `async_op=True`. Do not touch the call's tensors before it is done."""

    def __init__(
        self,
        name: str,
        future: Future[T],
        wait: Callable[[Future[T], float | None], T] = Future.result,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Wrap what will hold the answer.

        Args:
            name: for people.
            future: holds it.
            wait: how the caller's threads wait for it.
            failed: called when the caller hears that the call failed.
        """
        self._name = name
        self._future = future
        self._wait = wait
        self._failed = failed
        self._process = os.getpid()

    def __repr__(self) -> str:
        state = "under way" if not self.done() else "failed" if self._future.exception() else "done"
        return f"<Work {self._name} {state}>"

    def wait(self, timeout: float | None = None) -> T:
        """Wait until the call has ended, and return its result.

        Args:
            timeout: seconds to wait; None waits as long as the call takes, which has deadlines of its own. When it is
                over, the call itself goes on.

        Raises:
            ConfigError: `timeout` is not a number of seconds.
            TimeoutError: the call is still under way.
            IctError: the call failed with this. Its tensors are untouched.
            PeerClosed: the call was under way in another process, from which this one was forked.
            LocalProtocolError: a callback of `on_event` asked, on the thread that would have to finish the call.
        """
        timeout = None if timeout is None else checked_timeout(timeout)
        if os.getpid() != self._process and not self.done():  # nobody is here who would end it
            raise PeerClosed(f"{self._name} began in process {self._process}, from which this one was forked")
        try:
            return self._wait(self._future, timeout)
        except Exception as error:
            if not isinstance(error, TimeoutError) or self._future.done():
                self._hear()
                raise
            raise TimeoutError(f"{self._name} is still under way after {timeout:g} s") from None
        finally:
            del self  # an error knows its frames: they must not know who knows the error

    def done(self) -> bool:
        """Whether the call has ended, with a result or an error."""
        return self._future.done()

    def exception(self) -> BaseException | None:
        """The error with which the call failed; None if it succeeded or is still under way."""
        self._hear()
        return self._future.exception() if self._future.done() else None

    def _hear(self) -> None:
        """The caller hears now that the call failed, if it did."""
        ended = self._future.done() and not self._future.cancelled()
        if ended and self._future.exception() is not None and os.getpid() == self._process:
            self._failed()


def checked_timeout(timeout: object) -> float:
    """Convert a timeout, a number of any kind, to seconds that a thread can wait: the most of those, if it is more.

    Raises:
        ConfigError: it is not a number, or below 0.
    """
    try:
        fits = isinstance(timeout, SupportsFloat) and bool(timeout >= 0)  # type: ignore[operator]  # nan is not
    except (TypeError, ValueError, RuntimeError):  # an array, or a tensor, of several
        fits = False
    if not fits:
        raise ConfigError(f"timeout = {shown(timeout)} is not valid: it must be seconds, at least 0")
    return float(min(timeout, threading.TIMEOUT_MAX))  # type: ignore[call-overload]


def answered(work: Work[T], *, later: bool) -> T | Work[T]:
    """Give what a call with `async_op=later` returns: the work itself, or its answer.

    Raises:
        IctError: what made the call fail.
    """
    try:
        return work if later else work.wait()
    finally:
        del work  # as in `Work.wait`


class _Unheard:
    """Which calls come to nothing because one before them has failed, of which their caller did not know.

    Works know this and nothing else of their queue, which holds the newest answer.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # as the queue's
        self._asked = 0
        """How many calls were asked for so far."""
        self._failed = 0
        """Which of them failed, if no caller has heard of it yet."""
        self._void = 0
        """Up to which of them none is begun any more."""
        self._why = ""
        """Of the newest that failed."""

    def asked(self) -> int:
        """Count one more call; gives its number."""
        with self._lock:
            self._asked += 1
            return self._asked

    def check(self, number: int, name: str) -> None:
        """Raise if a call is not to be begun.

        Raises:
            RoundAborted: one before it has failed; names it.
        """
        with self._lock:
            if self._failed or number <= self._void:
                raise RoundAborted(f"{name} was not begun: before it {self._why}")

    def failed(self, number: int, name: str, error: BaseException) -> None:
        """A call has failed, by itself or since one before it has."""
        with self._lock:
            if not self._failed and number > self._void:
                self._failed, self._why = number, f"{name} failed: {type(error).__name__}: {error}"

    def heard(self, number: int) -> None:
        """A caller knows of a failure: what is asked for from now on is meant to come after it."""
        with self._lock:
            if self._failed and number >= self._failed:
                self._failed, self._void = 0, self._asked


@dataclass(frozen=True, slots=True)
class _Entry:
    """A call in the queue."""

    number: int
    name: str
    future: Future[Any]
    call: Callable[[], Any]
    anyway: bool


class WorkQueue:
    """Runs calls in the order in which they came, in a thread that lives while there is something to do or undo.

    Args:
        name: of the thread.
        ended: called in that thread as its last act.
        peer: whose threads these are.
    """

    def __init__(self, name: str, ended: Callable[[], None], peer: Handle) -> None:
        self._ended = ended
        self._peer = peer
        self._waiting: Inbox[_Entry | None] = peer.threads.inbox()
        self._lock = threading.RLock()  # reentrant: a signal handler may close the peer in the middle of this
        self._closed = False
        self._unfinished = 0
        self._unheard = _Unheard()
        self._thread = peer.threads.start(self._run, name)

    @property
    def idle(self) -> bool:
        """Whether every call so far has ended."""
        with self._lock:
            return not self._unfinished

    def submit(self, name: str, call: Callable[[], T], *, anyway: bool = False) -> Work[T]:
        """Queue a call; `anyway`: it is run also if one before it fails.

        Raises:
            PeerClosed: the queue was closed.
        """
        future: Future[T] = Answer()
        with self._lock:
            if self._closed:
                raise PeerClosed(f"{name}: the peer is closed")
            self._unfinished += 1
            number = self._unheard.asked()
        self._waiting.put(_Entry(number, name, future, call, anyway))
        self._see_to(name, future)
        heard = () if anyway else (functools.partial(self._unheard.heard, number),)
        return Work(name, future, self._peer.wait, *heard)

    def _see_to(self, name: str, future: Future[Any]) -> None:
        """Answer what a close came before: it stands behind the end, to which nobody comes."""
        if self._closed:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(PeerClosed(f"{name}: the peer is closed"))

    def close(self, timeout: float) -> None:
        """Run nothing more: what waits gets `PeerClosed`, what runs has `timeout` seconds to end."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (entry := self._waiting.get()) is not None:
            self._answer(entry)
            del entry  # and with it the call's tensors: the next call may be a day away
        with contextlib.suppress(PeerClosed):  # a peer that is gone has nothing to be left
            self._ended()

    def _answer(self, entry: _Entry) -> None:
        future = entry.future
        try:
            if self._closed:
                raise PeerClosed("the peer was closed before the call began")
            if not entry.anyway:
                self._unheard.check(entry.number, entry.name)  # which does not know the call: errors know their frames
            result = entry.call()
        except BaseException as error:
            if not (entry.anyway or isinstance(error, PeerClosed)):  # else all that come have this error themselves
                self._unheard.failed(entry.number, entry.name, error)
            self._end(future.set_exception, error)
        else:
            self._end(future.set_result, result)
        finally:
            del future, entry  # as in `Work.wait`

    def _end(self, tell: Callable[[Any], None], answer: Any) -> None:
        with self._lock:  # first: whoever goes on with its answer is to find the queue idle
            self._unfinished -= 1
        with contextlib.suppress(InvalidStateError):  # it was cancelled
            tell(answer)
