"""What code that blocks waits with: the seam between training threads and whatever runs them.

A training thread blocks, on a condition, a queue, another thread, a future of the peer's loop; the machines never do.
All of these come from one `Threads`, real ones by default. The simulator passes its own, whose waits are virtual time
and whose threads run one at a time, so that policies run in it unmodified and two runs take the same course.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, TypeVar

from ictp2p.concurrency import interrupts

T = TypeVar("T")
Item = TypeVar("Item")


class Condition(Protocol):
    """As `threading.Condition`."""

    def __enter__(self) -> bool:
        """Hold it."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Let go until told, or for so many seconds; whether it was told."""
        ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it is true, or for so many seconds; whether it is."""
        ...

    def notify_all(self) -> None:
        """Tell whoever waits."""
        ...


class Event(Protocol):
    """As `threading.Event`."""

    def set(self) -> None:
        """Let go whoever waits, from now on."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it; whether it is set."""
        ...


class Inbox(Protocol[Item]):
    """As `queue.SimpleQueue`."""

    def put(self, item: Item) -> None:
        """Append."""
        ...

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """Take the first; raises `queue.Empty` after so many seconds without one."""
        ...


class Thread(Protocol):
    """As `threading.Thread`, running."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        ...

    def is_alive(self) -> bool:
        """Whether it runs."""
        ...


class Threads:
    """The operating system's."""

    def condition(self) -> Condition:
        """Make a condition."""
        return interrupts.Condition()

    def event(self) -> Event:
        """Make an event, not set."""
        return interrupts.Event()

    def inbox(self) -> Inbox[Any]:
        """Make a queue."""
        return queue.SimpleQueue()

    def start(self, run: Callable[[], None], name: str) -> Thread:
        """Start a thread that does not keep the process alive."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread


class Beside(Protocol):
    """The peer's loop, as a training thread beside it sees it; see `loop_thread.LoopThread`."""

    @property
    def threads(self) -> Threads:
        """What threads beside this loop wait with."""
        ...

    def submit(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start a coroutine, which is made there, on the loop."""
        ...

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Wait for what `submit` gave."""
        ...

    def call(self, act: Callable[[], T], timeout: float | None = None) -> T:
        """Call a function on the loop and wait for its result; raises `TimeoutError` after so many seconds."""
        ...

    def post(self, act: Callable[[], object]) -> object:
        """Call a function on the loop, soon."""
        ...
