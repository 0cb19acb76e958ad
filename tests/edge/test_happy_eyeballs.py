"""The race of several attempts, in virtual time, against a model of it; and what becomes of those that lose."""

from __future__ import annotations

import asyncio
import itertools
import socket
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.edge.happy_eyeballs import first_of, in_turns, places
from ictp2p.types import Address
from sim.loop import SimLoop

PAUSE, DEADLINE = 0.25, 100.0


@dataclass(frozen=True)
class Attempt:
    """What would come of one."""

    seconds: float
    """Until it ends; inf: never."""
    succeeds: bool


@dataclass
class Race:
    """One race; notes who began, when, and what is open."""

    attempts: list[Attempt]
    began: dict[int, float] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)

    async def run(self) -> int:
        steps = [lambda number=number: self._try(number) for number in range(len(self.attempts))]
        async with asyncio.timeout(DEADLINE):
            return await first_of(steps, PAUSE, self.open.remove)

    async def _try(self, number: int) -> int:
        loop, attempt = asyncio.get_running_loop(), self.attempts[number]
        self.began[number] = loop.time()
        self.running.add(number)
        try:
            await (loop.create_future() if attempt.seconds == inf else asyncio.sleep(attempt.seconds))
        finally:
            self.running.discard(number)
        if not attempt.succeeds:
            raise ConnectionRefusedError(number)
        self.open.add(number)
        return number


def model(attempts: list[Attempt]) -> tuple[dict[int, float], int | None]:
    """When each begins, and who wins: RFC 8305, section 5, in a few lines."""
    now, began, ends = 0.0, dict[int, float](), dict[float, int]()
    for number in itertools.count():
        if number < len(attempts):
            began[number] = now
            ends[now + attempts[number].seconds] = number
        nothing_new = now + PAUSE if number + 1 < len(attempts) else inf
        now = min([nothing_new, *ends])
        if now >= DEADLINE:
            return began, None
        if now in ends and attempts[ends[now]].succeeds:
            return began, ends[now]
        ends.pop(now, None)
    raise AssertionError


def apart(attempts: list[Attempt]) -> list[Attempt]:
    """No two end at one time, whatever began when: which of them is then first is nobody's promise."""
    return [Attempt(each.seconds + 0.0007 * 2**n, each.succeeds) for n, each in enumerate(attempts)]


SECONDS = st.one_of(st.integers(0, 30).map(lambda n: n * 0.05), st.just(inf))
ATTEMPTS = st.lists(st.builds(Attempt, SECONDS, st.booleans()), min_size=1, max_size=6)


@given(attempts=ATTEMPTS.map(apart))
def test_each_attempt_begins_a_moment_after_the_one_before_or_as_one_fails_and_the_first_wins(
    attempts: list[Attempt],
) -> None:
    """Regression: each was given its part of the time, and whoever had a silent address first waited for that."""
    began, winner = model(attempts)
    race = Race(attempts)
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        if winner is not None:
            assert runner.run(race.run()) == winner
        elif any(each.seconds == inf for each in attempts):
            with pytest.raises(TimeoutError):
                runner.run(race.run())
        else:
            with pytest.raises(ExceptionGroup) as failed:
                runner.run(race.run())
            assert len(failed.value.exceptions) == len(attempts)
        assert race.began == pytest.approx(began, abs=1e-6)
    assert race.open == ({winner} if winner is not None else set())


@given(attempts=ATTEMPTS, seconds=st.integers(0, 40).map(lambda n: n * 0.05), turns=st.integers(0, 4))
def test_whatever_ends_a_race_nothing_runs_on_and_nothing_is_left_open(
    attempts: list[Attempt], seconds: float, turns: int
) -> None:
    """Also where two succeed at one time, or one just as the whole is given up."""
    race = Race(attempts)

    async def story() -> None:
        racing = asyncio.create_task(race.run())
        await asyncio.sleep(seconds)
        for _ in range(turns):
            await asyncio.sleep(0)
        racing.cancel()
        await asyncio.wait([racing])
        for _ in range(3):
            await asyncio.sleep(0)
        won = not racing.cancelled() and racing.exception() is None
        assert race.open == ({racing.result()} if won else set())
        assert not race.running

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(story())


def test_families_take_turns() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found = [(six, "2001:db8::1"), (six, "2001:db8::2"), (six, "2001:db8::3"), (four, "192.0.2.1")]
    assert [host for _, host in in_turns(found)] == ["2001:db8::1", "192.0.2.1", "2001:db8::2", "2001:db8::3"]
    assert in_turns([(four, "192.0.2.1"), (six, "2001:db8::1")])[0] == (four, "192.0.2.1")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:201", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
async def test_an_address_is_one_host_however_it_is_written(written: str, shown: str) -> None:
    """Regression: who had been found to need small packets was dialed with large ones by another of its names."""
    family = socket.AF_INET6 if ":" in shown else socket.AF_INET
    assert await places(Address(written, 1)) == [(family, shown)]
