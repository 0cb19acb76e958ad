"""An event loop in a thread of its own, beside the thread that trains.

The loop is uvloop's where there is one (twice the packets per CPU second of asyncio's own). The thread is a daemon:
a training script that ends without closing its peer ends, and the others notice a death, which is the truth. It is
stopped before the interpreter is taken apart, though: a daemon thread that runs on into that ends the process with a
segmentation fault when it is inside an extension (uvloop, torch) at the wrong moment, and the script's exit status
is lost. So are threads beside it that run what a program wants to be called for (`beside`).

A thread cannot be cancelled: a look-up of a host name that nobody answers, or a digest of gigabytes, ends when it ends.
So the loop finishes in its own thread, and who closes it waits for so long and no longer.

What asks the interpreter to exit (`sys.exit`) ends an event loop wherever on it that is raised, and threads do so
without a word. So the loop finishes then as if it had been closed, and whoever waits for it is told.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from ictp2p.concurrency import logs
from ictp2p.concurrency.descriptors import spare_standard_streams
from ictp2p.concurrency.interrupts import Answer
from ictp2p.concurrency.threads import Threads
from ictp2p.concurrency.torch_threads import compute_alone
from ictp2p.errors import LocalProtocolError, PeerClosed

T = TypeVar("T")
_log = logging.getLogger(__name__)
Begin: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
"""Makes a coroutine, on the loop: one that were made by whoever asks would be lost to an interrupt before it began."""

_PATIENCE = 2.0
"""Seconds that the end of the process waits for a loop that is in the middle of something."""
_CLOSING = 10.0
"""Seconds that a close waits for what cannot be cancelled: more than a look-up takes (resolv.conf(5): 5 s a try)."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop, the fastest that there is here.

    Raises:
        OSError: this process has no more descriptors.
    """
    spare_standard_streams()  # libuv closes none of these, but ends the process
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _nothing() -> None:
    pass


class LoopThread:
    """Runs coroutines of other threads.

    Args:
        name: of the thread.
        owner: what lives on it, for people.
        closed: what whoever asks for more is told once it is closed, or from a fork.
    """

    def __init__(self, name: str, owner: str = "the peer", closed: type[PeerClosed] = PeerClosed) -> None:
        self._owner = owner
        self._closed = closed
        self._loop = new_loop()
        self._lock = threading.RLock()  # reentrant: a signal handler may ask while its thread is asking
        self._closing = False
        self._stopped = False
        self._last: Begin[None] | None = None
        """What is to run once the loop has stopped, before it finishes; None: it is not to finish."""
        self._process = os.getpid()
        self.threads = Threads()
        """What threads beside this loop wait with."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._loop.close()
            raise
        _RUNNING[self] = None

    @property
    def left_behind(self) -> bool:
        """Whether this process was forked from the one that the loop runs in. Threads are not forked along."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """See that the loop runs in this process.

        Raises:
            PeerClosed: it stayed behind in the process that this one was forked from.
        """
        if self.left_behind:
            raise self._closed(
                f"{self._owner} lives in process {self._process}, from which this one, {os.getpid()}, was forked"
            )

    def submit(self, begin: Begin[T]) -> Future[T]:
        """Start a coroutine on the loop.

        Raises:
            PeerClosed: the loop has been closed, or stayed behind in the process that this one was forked from.
        """
        self.check_process()
        answer = Answer[T]()
        with self._lock:  # what came in before the loop is told to stop is cancelled by it; nothing comes in after
            if not self._closing:
                self._loop.call_soon_threadsafe(self._begin, begin, answer)
                return answer
        raise self._closed(f"{self._owner} is closed")

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Wait for what `submit` gave.

        Raises:
            PeerClosed: the loop was closed meanwhile.
            TimeoutError: it takes longer than `timeout` seconds.
            LocalProtocolError: this is the loop's own thread, which would wait for itself.
        """
        if not future.done():
            check_waits_elsewhere(self._thread, self._owner)
        try:
            return future.result(timeout)
        except CancelledError:
            raise self._closed(f"{self._owner} was closed") from None
        finally:
            del future  # an error knows its frames: they must not know who knows the error

    def run(self, begin: Begin[T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result; an interrupt of the waiting thread cancels it.

        Raises:
            PeerClosed: the loop was closed, before or meanwhile.
            TimeoutError: it takes longer than `timeout` seconds, and is cancelled.
        """
        future = self.submit(begin)
        try:
            return self.wait(future, timeout)
        except BaseException:
            future.cancel()
            raise
        finally:
            del future

    def call(self, act: Callable[[], T], timeout: float | None = None) -> T:
        """Call a function on the loop and wait for its result, as `run` does. Not from the loop's own thread."""

        async def work() -> T:
            return act()

        return self.run(work, timeout)

    def post(self, act: Callable[[], object]) -> bool:
        """Call a function on the loop, soon; gives whether it will be: not if the loop is closed, or stayed behind."""
        if self.left_behind:
            return False
        with self._lock:
            if not self._closing:
                self._loop.call_soon_threadsafe(act)
            return not self._closing

    def close(self, last: Begin[None] = _nothing) -> None:
        """Run a last coroutine, cancel what still runs, and end the thread.

        What it is in the middle of after 10 s, it ends without us, and so it does if our wait is interrupted.
        """
        self._end(_CLOSING, last)

    def abandon(self) -> None:
        """Stop, finishing nothing: the process ends. Its sockets end with it."""
        self._end(_PATIENCE, None)

    def _begin(self, begin: Begin[T], answer: Answer[T]) -> None:
        """On the loop: run it, unless that is not wanted any more. To cancel the answer cancels it."""
        if answer.cancelled():
            return
        task = self._loop.create_task(_begun(begin))
        task.add_done_callback(lambda done: _hand_over(done, answer))
        answer.add_done_callback(lambda done: self.post(task.cancel) if done.cancelled() else None)

    def _end(self, patience: float, last: Begin[None] | None) -> None:
        if self.left_behind:  # its sockets are the parent's too, and so is the selector that watches them
            return
        with self._lock:
            if not self._closing:
                self._closing, self._last = True, last
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stop)  # each time, for an interrupt may have come before
        self._thread.join(patience)

    def _stop(self) -> None:
        """On the loop: stop it, once, for it runs on to finish."""
        if not self._stopped:
            self._stopped = True
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        compute_alone()
        try:
            self._loop.run_forever()
        except BaseException:
            logs.exception(_log, "the loop of %s has ended", self._owner)
            self._give_up()
        if self._last is not None:
            try:
                _finish(self._loop, self._last)
            finally:
                _RUNNING.pop(self, None)

    def _give_up(self) -> None:
        """It was ended from within: there is nothing more to stop, and nobody may wait for it."""
        self._stopped = True
        with self._lock:
            if not self._closing:
                self._closing, self._last = True, _nothing


def check_waits_elsewhere(thread: threading.Thread, owner: str) -> None:
    """Refuse what would wait for `owner` in the thread that runs it: that wait would never end.

    Raises:
        LocalProtocolError: this is that thread.
    """
    if threading.current_thread() is thread:
        raise LocalProtocolError(
            f"{owner} cannot be waited for on its own thread, as in a callback of on_event: do it in another thread"
        )


def beside(act: Callable[[], object]) -> None:
    """Call a function in a thread of its own, for which the end of the process waits as long as for a loop."""

    def run() -> None:
        try:
            act()
        finally:
            _BESIDE.pop(thread, None)

    thread = threading.Thread(target=run, daemon=True)
    _BESIDE[thread] = None
    try:
        thread.start()
    except BaseException:
        _BESIDE.pop(thread, None)
        raise


_RUNNING: dict[LoopThread, None] = {}
_BESIDE: dict[threading.Thread, None] = {}


@atexit.register  # with the import, and so called after whatever a script registers to close its peer
def _end_all() -> None:
    for loop in tuple(_RUNNING):
        loop.abandon()
    over = time.monotonic() + _PATIENCE
    for thread in tuple(_BESIDE):  # after the loops, which start them
        thread.join(max(0.0, over - time.monotonic()))


async def _begun(begin: Begin[T]) -> T:
    return await begin()


def _hand_over(task: asyncio.Task[T], answer: Answer[T]) -> None:
    with suppress(InvalidStateError):  # it was cancelled
        if task.cancelled():
            answer.cancel()
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())


def _finish(loop: asyncio.AbstractEventLoop, last: Begin[None]) -> None:
    try:
        loop.run_until_complete(_end_tasks(last))
        loop.run_until_complete(loop.shutdown_asyncgens())
        # It waits in a thread of its own: where none can be had, nobody waits; as the program exits 3.12 begins none.
        if threading.main_thread().is_alive():
            with suppress(RuntimeError):  # it waits
                loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _end_tasks(last: Begin[None]) -> None:
    try:
        await asyncio.wait_for(last(), _CLOSING)
    except Exception as error:
        told = {"message": "the last that was to run on a loop failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(told)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
