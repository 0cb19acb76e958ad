"""Time, order, and what the loop does to processes."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim.limits import CLOCK_RATE, OFFSET
from sim.loop import HOST, Deadlock, Livelock, Process, SimLoop


def test_time_jumps_and_equal_times_keep_their_order() -> None:
    loop, seen = SimLoop(), []
    for name in "abc":
        loop.at(5.0, seen.append, name)
    loop.at(2.0, seen.append, "first")
    loop.run_to(10.0)
    assert seen == ["first", "a", "b", "c"]
    assert loop.now == 10.0


def test_what_a_process_does_behind_what_holds_it_up_comes_after() -> None:
    loop, process, seen = SimLoop(), Process("a", offset=100.0), list[tuple[str, float, float]]()

    def note(what: str) -> None:
        seen.append((what, loop.time(), loop.now))

    def act() -> None:
        loop.block(process, 1.0)
        loop.block(process, 1.0)
        note("clock")
        loop.call_soon(note, "next")
        loop.call_later(1.0, note, "later")

    loop.at(1.0, act, context=process.context)
    loop.at(1.5, note, "others do not wait")
    loop.at(2.5, note, "due meanwhile", context=process.context)
    loop.run_to(10.0)
    assert [what for what, _, _ in seen] == ["clock", "others do not wait", "next", "due meanwhile", "later"]
    assert [local for _, local, _ in seen] == pytest.approx([103.0, 1.5, 103.0, 103.0, 104.0])
    assert [now for _, _, now in seen] == pytest.approx([1.0, 1.5, 3.0, 3.0, 4.0])


def test_a_task_that_waits_for_ever_is_a_deadlock_at_once() -> None:
    loop = SimLoop()
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_a_moment_that_never_ends_is_a_livelock() -> None:
    loop = SimLoop()

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(Livelock):
        loop.run_to(1.0)


def test_an_executor_runs_here_and_now() -> None:
    loop = SimLoop()

    async def story() -> int:
        return await loop.run_in_executor(None, lambda: 7)

    assert loop.run_until_complete(story()) == 7


def test_a_killed_process_runs_nothing_but_its_last_words_in_that_instant() -> None:
    loop, process, seen = SimLoop(), Process("x"), []

    async def life() -> None:
        try:
            while True:
                await asyncio.sleep(1.0)
                seen.append(loop.now)
        finally:
            seen.append("cancelled")

    loop.create_task(life(), context=process.context)
    loop.at(3.5, lambda: (setattr(process, "alive", False), loop.kill(process)))
    loop.run_to(10.0)
    assert [round(x, 6) if isinstance(x, float) else x for x in seen] == [1.0, 2.0, 3.0, "cancelled"]


def test_a_paused_process_catches_up_when_it_goes_on() -> None:
    loop, process, seen = SimLoop(), Process("x"), []
    loop.at(1.0, lambda: seen.append(loop.now), context=process.context)
    loop.pause(process)
    loop.run_to(2.0)
    assert seen == []
    loop.at(3.0, loop.resume, process)
    loop.run_to(4.0)
    assert seen == [3.0]


def test_a_cancelled_timer_stays_cancelled_while_it_is_held_back() -> None:
    loop, process, seen = SimLoop(), Process("x"), []
    timer = loop.at(1.0, seen.append, "no", context=process.context)
    loop.pause(process)
    loop.run_to(2.0)
    timer.cancel()
    loop.resume(process)
    loop.run_to(3.0)
    assert seen == []
    assert loop.errors == []


def test_a_slow_process_does_one_thing_at_a_time() -> None:
    loop, process, seen = SimLoop(), Process("x"), []
    process.cost = 0.5
    for _ in range(3):
        loop.at(1.0, lambda: seen.append(loop.now), context=process.context)
    loop.run_to(5.0)
    assert seen == [1.0, 1.5, 2.0]


def test_a_slow_process_that_is_fast_again_forgets_nothing() -> None:
    loop, process, seen = SimLoop(), Process("x"), []
    process.cost = 0.5
    for n in range(4):
        loop.at(1.0, seen.append, n, context=process.context)
    loop.at(1.2, lambda: setattr(process, "cost", 0.0))
    loop.run_to(5.0)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize(("offset", "rate"), [(100.0, 1.0), (0.0, 1.1), (3.7, 0.9)])
def test_a_skewed_clock_shows_and_waits_in_its_own_time_and_is_never_early(offset: float, rate: float) -> None:
    loop, process, seen = SimLoop(), Process("x", offset, rate), []

    async def life() -> None:
        began = loop.time()
        await asyncio.sleep(2.0)
        seen.append((loop.time() - began, loop.now))

    loop.create_task(life(), context=process.context)
    loop.run_to(10.0)
    (shown, true) = seen[0]
    assert 2.0 <= shown < 2.0 + 1e-6
    assert true == pytest.approx(2.0 / rate)
    assert HOST.get() is None


@given(
    st.floats(0.0, OFFSET.most),
    st.floats(CLOCK_RATE.least, CLOCK_RATE.most),
    st.floats(0.0, 1000.0),
    st.integers(1, 20),
)
@example(0.0, 100.0, 4.926, 1)
def test_a_timer_is_never_early_by_a_rounding_error(offset: float, rate: float, now: float, steps: int) -> None:
    """Regression: on a fast clock a timer ran before its time, and who waited again for the rest did so for ever."""
    loop, process, early = SimLoop(), Process("x"), []
    loop.run_to(now)
    process.set_clock(now, offset, rate)

    def due(when: float) -> None:
        early.append(when - loop.time())

    def ask() -> None:
        when = loop.time()
        for _ in range(steps):
            when = math.nextafter(when, math.inf)
        loop.call_at(when, due, when, context=process.context)

    loop.call_soon(ask, context=process.context)
    loop.run_to(now + 1.0)
    assert early
    assert max(early) <= 0.0
