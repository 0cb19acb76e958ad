"""An asyncio event loop whose clock jumps: nothing waits, and nothing happens twice in two orders.

Virtual time stands still while callbacks are ready and then jumps to the next timer. Callbacks of one moment run
in the order in which they were scheduled, timers of one moment too, so a run is a function of its seed. There is no
selector, no thread and no socket; a loop on which nothing can ever happen again raises `Deadlock` instead of
waiting, and one on which a moment never ends raises `Livelock`.

`HOST` names the simulated process on whose behalf code runs. asyncio copies the context into every task and timer,
so each callback carries its process with it, and the loop can do to a process what an operating system can: kill it
(its callbacks never run again), stop it (they are held back until it goes on), slow it down (each one takes time),
and give it a clock of its own that is off and runs at another rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HOST: contextvars.ContextVar[Process | None] = contextvars.ContextVar("ictp2p simulated process", default=None)
"""The simulated process that is running; None: the simulator itself."""

_MOMENT_LIMIT = 200_000  # rounds of ready callbacks at one instant: far more than any honest cascade takes
_TICK = 1e-9  # seconds: what a timer may be late, as any clock has a resolution
_GARBAGE = 1024  # cancelled timers from which the heap is swept


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Let a loop run although another one may be running in this thread: the garbage collector comes at any moment."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


class Deadlock(RuntimeError):
    """Nothing is scheduled: no event will ever happen again."""


class Livelock(RuntimeError):
    """Virtual time does not advance: callbacks keep scheduling callbacks for the same instant."""


class Process:
    """One life of a simulated program, as the loop sees it.

    Args:
        name: of the host that it runs on.
        offset: seconds by which its clock is ahead when it starts.
        rate: seconds of its clock per true second.
        now: true time at its start.
    """

    def __init__(self, name: str, offset: float = 0.0, rate: float = 1.0, now: float = 0.0) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.cost = 0.0
        """Seconds that each callback takes; 0 for none."""
        self.context = contextvars.copy_context()
        """Run whatever belongs to this process in (a copy of) this context."""
        self.context.run(HOST.set, self)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._swept = 64
        self._true, self._shown, self._rate = now, now + offset, rate
        self.held: deque[asyncio.Handle] = deque()
        self.busy = False
        self.until = 0.0
        """The true time until which it stands in the middle of what it does."""

    def local(self, true: float) -> float:
        """What its clock shows at a true time."""
        return self._shown + (true - self._true) * self._rate

    def true(self, local: float) -> float:
        """The true time at which its clock will show `local`."""
        return self._true + (local - self._shown) / self._rate

    def set_clock(self, now: float, offset: float, rate: float) -> None:
        """Move its clock by `offset` seconds at the true time `now`, and run it at `rate` from then on."""
        self._true, self._shown, self._rate = now, self.local(now) + offset, rate

    def own(self, task: asyncio.Task[Any]) -> None:
        """Remember a task of this process, so that it ends with it."""
        self.tasks[task] = None
        if len(self.tasks) > self._swept:
            self.tasks = {task: None for task in self.tasks if not task.done()}
            self._swept = max(64, 2 * len(self.tasks))

    def __repr__(self) -> str:
        return f"<Process {self.name} {'alive' if self.alive else 'dead'}>"


class _Timer(asyncio.TimerHandle):
    """A scheduled `asyncio.TimerHandle`, made without asking for the debug mode that this loop has not.

    A world makes a million of them in a few virtual minutes; asyncio's own take twice as long to make.
    """

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = True


class SimLoop(asyncio.BaseEventLoop):
    """The loop. `now` is the true time in seconds; `time()` is what the running process's clock shows."""

    def __init__(self) -> None:
        super().__init__()
        self._ready: deque[asyncio.Handle]  # asyncio's own queue
        self.now = 0.0
        self.steps = 0
        """Callbacks that were run."""
        self.errors: list[str] = []
        """What nobody caught."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._serial = 0
        self._cancelled = 0
        self._moment = 0
        self._dying: list[Process] = []
        self.set_exception_handler(self._uncaught)

    # ------------------------------------------------------------ running

    def run_to(self, when: float) -> None:
        """Let everything happen that is due before the true time `when`, and leave the clock there."""
        timer = self.at(max(when, self.now), self.stop)
        try:
            self.run_forever()
        finally:
            timer.cancel()

    def perform(self, act: Callable[[], T]) -> T:
        """Call `act` as a callback of the loop, at this instant; the simulator acts upon its world in this way."""
        if self.is_running():
            return act()
        results: list[T] = []
        failures: list[BaseException] = []

        def once() -> None:
            try:
                results.append(act())
            except BaseException as error:
                failures.append(error)
            self.stop()

        self.call_soon(once, context=contextvars.Context())
        self.run_forever()
        if failures:
            raise failures[0]
        return results[0]

    def _run_once(self) -> None:
        if not self._ready:
            self._advance()
        self._moment += 1
        if self._moment > _MOMENT_LIMIT:
            raise Livelock(f"virtual time has stood still at {self.now} for {_MOMENT_LIMIT} rounds")
        ready, dispatch = self._ready, self._dispatch
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                dispatch(handle)
            del handle  # as in `_dispatch`

    def _advance(self) -> None:
        """Jump to the next timer, and make everything ready that is due at that instant."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._cancelled -= 1
        if not timers:
            raise Deadlock(f"at {self.now:.6f} s nothing is scheduled: every task waits for another")
        self._dying.clear()
        if timers[0][0] > self.now:
            self.now = timers[0][0]
            self._moment = 0
        self._fall_due()

    def _fall_due(self) -> None:
        """Make everything ready that is due by now."""
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            if handle._cancelled:
                self._cancelled -= 1
            else:
                handle._scheduled = False  # type: ignore[attr-defined]
                self._ready.append(handle)

    def _dispatch(self, handle: asyncio.Handle) -> None:
        context: contextvars.Context = handle._context  # type: ignore[attr-defined]
        process = context.get(HOST)
        if (
            process is not None
            and (process.paused or process.busy or process.cost or not process.alive)
            and not self._may_run(process, handle)
        ):
            return
        self.steps += 1
        try:
            context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            text = f"Exception in callback {handle._callback!r}"  # type: ignore[attr-defined]
            self.call_exception_handler({"message": text, "exception": error, "handle": handle})
        del handle  # an error's traceback knows this frame since Python 3.12, and the handle what the error came from

    def _may_run(self, process: Process, handle: asyncio.Handle) -> bool:
        """Whether a process that is dead, stopped or slow runs this now; what it is to run later is held back."""
        if handle.cancelled() or not (process.alive or process in self._dying):
            return False  # perhaps cancelled while it was held back
        if process.paused or process.busy:
            process.held.append(handle)
            return False
        if process.cost and process.alive:
            self._occupy(process)
        return True

    # ------------------------------------------------------------ what an operating system does

    def kill(self, process: Process) -> None:
        """End a process at once. Its tasks are cancelled within this instant; nothing they do reaches anybody."""
        process.alive = process.paused = process.busy = False
        self._release(process)  # a task must have begun to be cancelled
        self._dying.append(process)
        for task in list(process.tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # nobody will wait for the dead
            task.cancel()

    def pause(self, process: Process) -> None:
        """Stop a process, as SIGSTOP does."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """Let a paused process go on: it runs at once what it missed."""
        process.paused = False
        if not process.busy:
            self._release(process)

    def block(self, process: Process, seconds: float) -> None:
        """What a process does now takes so many seconds; what it does next, in the same callback too, comes after."""
        process.busy = True
        process.until = max(process.until, self.now) + seconds
        self.at(process.until, self._idle, process, context=contextvars.Context())

    def _release(self, process: Process) -> None:
        self._ready.extend(process.held)
        process.held.clear()

    def _occupy(self, process: Process) -> None:
        """The callback that runs now keeps the process busy for a while."""
        process.busy = True
        self.at(self.now + process.cost, self._idle, process, context=contextvars.Context())

    def _idle(self, process: Process) -> None:
        if process.until > self.now:
            return
        process.busy = False
        if process.paused or not process.held:
            return
        if not process.cost:  # it is fast again: all that waited goes on, in its order
            self._release(process)
            return
        while process.held and not process.busy:  # cancelled ones take no time
            self._dispatch(process.held.popleft())

    # ------------------------------------------------------------ asyncio's side

    def time(self) -> float:
        """What the clock of the running process shows; true time for the simulator itself."""
        process = HOST.get()
        return self.now if process is None else process.local(max(self.now, process.until))

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule by the clock of the running process."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule by the clock of the running process; what is due at one instant runs in the order of the calls."""
        process = HOST.get()
        if process is not None:
            due = process.true(when)
            if due > self.now or when > process.local(self.now):
                due = max(due, self.now) + _TICK  # never early by a rounding error: who then waits again waits forever
            when = due
        return self.at(when, callback, *args, context=context)

    def at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule by true time, whoever asks: for the simulated world, which has one time."""
        timer = _Timer(when, callback, args, self, context)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    def create_task(self, coro: Coroutine[Any, Any, T], **kwargs: Any) -> asyncio.Task[T]:  # type: ignore[override]
        """Create a task that belongs to the process whose context it gets."""
        task: asyncio.Task[T] = super().create_task(coro, **kwargs)
        context = kwargs.get("context")
        process = HOST.get() if context is None else context.get(HOST)
        if process is not None:
            process.own(task)
            if not process.alive:
                task.cancel()
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run `func` here and now: there are no threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Same as `call_soon`."""
        return self.call_soon(callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if not handle._scheduled:  # type: ignore[attr-defined]
            return
        self._cancelled += 1
        if self._cancelled > _GARBAGE and 2 * self._cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _uncaught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        process = HOST.get()
        if process is None or process.alive:
            where = f"{process.name}: " if process else ""
            stack = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
            self.errors.append(f"{where}{str(context.get('message'))[:200]}: {error!r}\n{stack}")

    def __del__(self) -> None:
        """There is nothing to close."""
