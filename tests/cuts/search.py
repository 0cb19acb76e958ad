"""Faults at a callback of one's choice: each place where a program may be cut is visited, not hoped for.

An event loop runs one callback after the other, and whatever comes from outside, a cancellation, a broken connection, a
close, comes between two of them. So what a story does has a finite number of places where it may be cut, and a property
of all of them is tested at all of them; of a long story at as many as there is time for, evenly spread: `CUTS` says at
how many. SQLite is tested so against memory that runs out: at the first allocation, at the second, and so on, until all
goes well (sqlite.org/testing.html).

A story is told once for each place, from its beginning, on a loop of its own whose time is its own work. So places have
numbers, and the number of one that was found wrong is all that it takes to see it again.
"""

from __future__ import annotations

import asyncio
import gc
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar

from tests.bulk.conftest import TurnLoop
from tests.bulk.rings import descriptors

T = TypeVar("T")
PLACES = int(os.environ.get("CUTS", "8"))
"""Places at which each fault strikes each story; more than there are: all of them."""
GAPS = (1, 2, 3, 5, 8, 13, 21, 34)
"""Callbacks between two faults of one telling."""
PROMPT = 8.0
"""Virtual seconds within which all have to end after a fault: no call of a story has a deadline as near."""
_SETTLED = 3.0
"""Virtual seconds after which nothing of what was cut may be left."""
_LATER = 3
"""Callbacks after which a thread has done what it was given."""

Fault: TypeAlias = Callable[[Any], None]
"""Strikes a story that is being told."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What strikes a story, at each of its places in turn, and what a little later."""

    name: str
    fault: Fault
    then: Fault | None = None

    @property
    def begin(self) -> int:
        """At which place: others begin at others, so that together they are at more."""
        return len(self.name)


class CutLoop(TurnLoop):
    """Counts its callbacks, and lets something happen after some of them.

    What is given to threads is done a little later, and is done whether somebody still waits for it or not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.strikes: dict[int, Callable[[], None]] = {}
        """By the number of the callback after which they happen."""
        self.working = 0
        """What is being done by threads."""

    def _dispatch(self, handle: asyncio.Handle) -> None:
        super()._dispatch(handle)
        self.count += 1
        if (strike := self.strikes.pop(self.count, None)) is not None:
            strike()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Have `func` done by what would be a thread."""
        answer: asyncio.Future[T] = self.create_future()
        self.working += 1

        def work(turns: int) -> None:
            if turns:
                self.call_soon(work, turns - 1)
                return
            self.working -= 1
            try:
                result = func(*args)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.call_soon(work, _LATER)
        return answer


class Story(ABC):
    """What some do together, and what has to hold whatever becomes of them. One object for each telling."""

    own: tuple[type[BaseException], ...] = (asyncio.CancelledError,)
    """What it may come to for whoever was cancelled."""
    others: tuple[type[BaseException], ...] = ()
    """What it may come to for all others."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[Any]] = []
        """One for each who takes part."""
        self.cancelled: set[int] = set()
        """Who was, before it had ended."""

    @abstractmethod
    async def prepare(self) -> None:
        """Have what there is before it begins."""

    @abstractmethod
    def parts(self) -> Sequence[Awaitable[Any]]:
        """What each who takes part does."""

    def allowed(self, who: int) -> tuple[type[BaseException], ...]:
        """The errors that one may come to."""
        return self.own if who in self.cancelled else self.others

    def cancel(self, who: int) -> None:
        """Cancel one of them."""
        if self.tasks[who].cancel():
            self.cancelled.add(who)

    @abstractmethod
    async def ended(self) -> None:
        """Wait for whatever else was begun by a fault."""

    @abstractmethod
    def left(self) -> Iterator[str]:
        """What should not be there any more, or is wrong, when all is over."""

    @abstractmethod
    async def again(self) -> None:
        """Do what must still work."""

    @abstractmethod
    async def close(self) -> None:
        """End all that there is."""


@dataclass(slots=True)
class Telling:
    """What one telling has shown."""

    callbacks: int = 0
    """From when all had begun to its end."""
    wrong: list[str] = field(default_factory=list)


def tell(make: Callable[[], Story], strikes: Sequence[tuple[int, Fault]]) -> tuple[Telling, CutLoop]:
    """Tell a story that is struck after these callbacks of it."""
    telling, loop, before = Telling(), CutLoop(), len(descriptors())
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_told(make, strikes, telling, loop))
    except Exception as error:
        telling.wrong.append(f"it is told no further: {error!r}")
    if (more := len(descriptors()) - before) > 0:
        telling.wrong.append(f"{more} descriptors are open")
    return telling, loop


async def _told(
    make: Callable[[], Story], strikes: Sequence[tuple[int, Fault]], telling: Telling, loop: CutLoop
) -> None:
    story = make()
    await story.prepare()
    parts, begun = story.parts(), list[int]()

    async def part(work: Awaitable[Any]) -> None:
        begun.append(loop.count)
        if len(begun) == len(parts):
            loop.strikes = {begun[-1] + after: partial(fault, story) for after, fault in strikes}
        await work

    story.tasks = [asyncio.ensure_future(part(each)) for each in parts]
    _, running = await asyncio.wait(story.tasks, timeout=PROMPT)
    telling.callbacks = loop.count - begun[-1]
    loop.strikes.clear()
    if running:
        telling.wrong.append(f"{[story.tasks.index(task) for task in running]} hang")
        for task in running:
            task.cancel()
        await asyncio.wait(running)
    await story.ended()
    telling.wrong += _outcomes(story) if not running else ()
    await asyncio.sleep(_SETTLED)
    telling.wrong += story.left()
    await _still_works(story, telling)
    await asyncio.sleep(_SETTLED)
    telling.wrong += (f"later: {each}" for each in story.left())
    await story.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    telling.wrong += (f"a task is left: {task!r}" for task in others)
    telling.wrong += ["a thread still works"] if loop.working else []


def _outcomes(story: Story) -> Iterator[str]:
    """Whether each came to what it should come to."""
    for who, task in enumerate(story.tasks):
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None and who in story.cancelled:
            yield f"{who} was cancelled, and nobody noticed"
        elif error is not None and not isinstance(error, story.allowed(who)):
            yield f"{who} came to {error!r}"


async def _still_works(story: Story, telling: Telling) -> None:
    try:
        async with asyncio.timeout(PROMPT):
            await story.again()
    except Exception as error:
        telling.wrong.append(f"the next one: {error!r}")


@cache
def places(make: Callable[[], Story]) -> range:
    """The places where a story may be struck, once all have begun. Nothing is wrong with it where it is not."""
    telling, loop = tell(make, ())
    assert not telling.wrong + loop.errors, telling.wrong + loop.errors
    return range(1, telling.callbacks)


def spread(count: int, begin: int, most: int = PLACES) -> range:
    """So many of these, at an odd distance: of what comes in turns each has its turn."""
    step = max(1, -(-count // most)) | 1
    return range(begin % step, count, step)


def search(make: Callable[[], Story], cut: Cut) -> list[str]:
    """Have a story cut at its places; what was wrong where."""
    pairs = [(place, gap) for place in places(make) for gap in (GAPS if cut.then is not None else (0,))]
    loops: list[tuple[str, CutLoop]] = []
    found: list[str] = []
    for place, gap in (pairs[n] for n in spread(len(pairs), cut.begin)):
        strikes = [(place, cut.fault)] + ([] if cut.then is None else [(place + gap, cut.then)])
        telling, loop = tell(make, strikes)
        where = f"at {place}" + (f", and {gap} later" if gap else "")
        loops.append((where, loop))
        found += (f"{where}: {each}" for each in telling.wrong)
    gc.collect()  # an error that nobody has asked for is told when its task goes
    return found + [f"{where}: {each}" for where, loop in loops for each in loop.errors]
