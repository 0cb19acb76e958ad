"""Threads of simulated processes: real ones, of which one runs at a time, when the simulator's loop says so.

A training loop is code that blocks, and it must run as it is. So it gets a thread of the operating system, and with it
a baton. The loop hands the baton over inside one of its callbacks and waits; the thread computes, at one instant of
virtual time, until it blocks on something made here (a condition, a queue, another thread, the loop); then it hands
the baton back, and a callback or a timer of the loop gives it to it again. Nothing ever runs beside anything else, so
locks hold nothing and a run is a function of its seed, as a world without threads is.

Real threads rather than coroutines that change stacks: what torch keeps per thread (whether gradients are recorded)
stays with the code that set it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, TypeVar

from ictp2p.concurrency.threads import Threads
from ictp2p.errors import PeerClosed
from sim.loop import Process, SimLoop

T = TypeVar("T")

_STACKS = 10.0
"""Real seconds that a thread whose process was killed has to end; it takes moments."""


class Killed(BaseException):
    """The process of this thread was killed."""


class SimThread:
    """One thread of a simulated process.

    Args:
        crew: the threads of its process.
        run: what it does.
        name: for people.
    """

    def __init__(self, crew: Crew, run: Callable[[], None], name: str) -> None:
        self._crew = crew
        self._run = run
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._sleep = 0
        """Which of its waits this thread is in; what would end an earlier one is void."""
        self._asleep = True
        self._over = SimCondition(crew)
        self._alive = True
        self._context = crew.process.context.copy()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._alive

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, in virtual time; called by another thread of its process."""
        if self._alive:
            self._over.wait(timeout)

    def hand_over(self) -> None:
        """On the loop: let it run until it blocks or ends."""
        self._go.release()
        self._back.acquire()

    def wake(self, sleep: int) -> None:
        """On the loop: end its wait number `sleep`, unless that has ended."""
        if self._asleep and self._sleep == sleep and self._alive:
            self.hand_over()

    def block(self, arm: Callable[[int], object]) -> None:
        """In this thread: wait until woken.

        Args:
            arm: given the number of this wait, sees to it that `wake` is called with it.

        Raises:
            Killed: the process was killed.
        """
        self._crew.check()
        self._sleep, self._asleep = self._sleep + 1, True
        arm(self._sleep)
        self._back.release()
        self._go.acquire()
        self._asleep = False
        self._crew.check()

    def end(self) -> None:
        """On the loop, the process having been killed: have the thread unwind, and wait for it."""
        while self._alive and self._asleep:
            self.hand_over()
        self._thread.join(_STACKS)

    def _main(self) -> None:
        self._go.acquire()
        self._asleep = False
        try:
            if not self._crew.dead:
                self._context.run(self._run)
        except Killed:
            pass
        finally:
            self._alive = False
            self._over.notify_all()
            self._back.release()


class Crew(Threads):
    """The threads of one process, and what they wait with.

    Args:
        loop: the simulator's.
        process: whose.
    """

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self.loop, self.process = loop, process
        self.dead = False
        """Whether the process was killed: whatever would block raises `Killed`."""
        self._threads: dict[threading.Thread, SimThread] = {}

    def condition(self) -> SimCondition:
        """Make a condition."""
        return SimCondition(self)

    def event(self) -> SimEvent:
        """Make an event, not set."""
        return SimEvent(self)

    def inbox(self) -> SimInbox:
        """Make a queue."""
        return SimInbox(self)

    def start(self, run: Callable[[], None], name: str) -> SimThread:
        """Start a thread; it runs once whoever runs now has blocked."""
        self._threads = {key: thread for key, thread in self._threads.items() if thread.is_alive()}
        thread = SimThread(self, run, name)
        self._threads[thread._thread] = thread
        self.soon(lambda: thread.wake(0))
        return thread

    @property
    def running(self) -> SimThread:
        """The thread that calls.

        Raises:
            LookupError: it is none of this process: the loop must not block.
        """
        return self._threads[threading.current_thread()]

    def soon(self, act: Callable[[], object]) -> None:
        """Call `act` on the loop, as this process."""
        self.loop.call_soon(act, context=self.process.context)

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass for the calling thread."""
        me = self.running

        def arm(sleep: int) -> None:
            self.process.context.copy().run(self.loop.call_later, seconds, me.wake, sleep)

        me.block(arm)

    def check(self) -> None:
        """Raise `Killed` if the process was killed."""
        if self.dead:
            raise Killed

    def end(self) -> None:
        """On the loop: the process was killed; end its threads."""
        self.dead = True
        for thread in list(self._threads.values()):
            thread.end()


class SimCondition:
    """As `threading.Condition`, among threads of which one runs at a time: holding it means nothing."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._waiting: deque[tuple[SimThread, int]] = deque()

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until told, or for so many virtual seconds; whether it was told."""
        me, crew, place = self._crew.running, self._crew, []

        def arm(sleep: int) -> None:
            place.append((me, sleep))
            self._waiting.append((me, sleep))
            if timeout is not None:
                crew.process.context.copy().run(crew.loop.call_later, timeout, me.wake, sleep)

        me.block(arm)
        if place[0] in self._waiting:
            self._waiting.remove(place[0])
            return False
        return True

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it is true, or for so many virtual seconds; whether it is."""
        end = None if timeout is None else self._crew.loop.now + timeout
        while not predicate():
            left = None if end is None else end - self._crew.loop.now
            if left is not None and left <= 0:
                return False
            self.wait(left)
        return True

    def notify_all(self) -> None:
        """Wake whoever waits, once this thread or callback has ended or blocks."""
        while self._waiting:
            thread, sleep = self._waiting.popleft()
            self._crew.soon(lambda thread=thread, sleep=sleep: thread.wake(sleep))  # type: ignore[misc]


class SimEvent:
    """As `threading.Event`."""

    def __init__(self, crew: Crew) -> None:
        self._changed, self._set = SimCondition(crew), False

    def set(self) -> None:
        """Let go whoever waits, from now on."""
        self._set = True
        self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it; whether it is set."""
        return self._set or self._changed.wait(timeout)


class SimInbox:
    """As `queue.SimpleQueue`."""

    def __init__(self, crew: Crew) -> None:
        self._changed = SimCondition(crew)
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        """Append."""
        self._items.append(item)
        self._changed.notify_all()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the first; raises `queue.Empty` after so many virtual seconds without one."""
        if not self._items and block:
            self._changed.wait(timeout)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


class BesideLoop:
    """The simulator's loop as a training thread beside it sees it; see `ictp2p.concurrency.loop_thread.LoopThread`."""

    def __init__(self, crew: Crew) -> None:
        self.threads: Threads = crew
        self._crew = crew

    def submit(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start a coroutine on the loop."""
        self._crew.check()
        return asyncio.run_coroutine_threadsafe(begin(), self._crew.loop)

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Wait for what `submit` gave, in virtual time."""
        if not future.done():
            told = SimCondition(self._crew)
            future.add_done_callback(lambda _: told.notify_all())
            told.wait(timeout)
        if not future.done():
            raise TimeoutError
        try:
            return future.result()
        except CancelledError:
            raise PeerClosed("the peer was closed") from None

    def call(self, act: Callable[[], T], timeout: float | None = None) -> T:
        """Call a function on the loop and wait for its result, in virtual time."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(act())
            except BaseException as error:
                future.set_exception(error)

        self._crew.check()
        self._crew.soon(run)
        return self.wait(future, timeout)

    def post(self, act: Callable[[], object]) -> None:
        """Call a function on the loop, soon."""
        self._crew.soon(act)
