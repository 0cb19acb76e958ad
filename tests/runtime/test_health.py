"""False suspicions are those of members who had been there all along."""

import asyncio
from collections import deque

import pytest

from ictp2p.runtime.health import Health, quantile


def test_a_suspicion_cleared_under_the_same_leader_was_false() -> None:
    health = Health()
    health.judged("mesh", "b", "suspect", "leader-1")
    health.judged("mesh", "b", "alive", "leader-1")
    assert health.false_suspicions == 1


def test_a_suspicion_cleared_by_a_new_leader_was_right() -> None:
    health = Health()
    health.judged("mesh", "b", "suspect", "leader-1")
    health.judged("mesh", "b", "alive", "leader-2")
    assert health.false_suspicions == 0


def test_a_death_and_a_return_is_no_false_suspicion() -> None:
    health = Health()
    for status in ("suspect", "dead", "alive"):
        health.judged("members", "p", status, "p")
    assert health.false_suspicions == 0


async def test_lag_is_what_the_loop_was_late_by() -> None:
    health, now = Health(), 0.0

    def clock() -> float:
        nonlocal now
        now += 0.55
        return now

    health.watch(clock)
    async with asyncio.timeout(5):
        while not health.lags:
            await asyncio.sleep(0.01)
    health.rest()
    assert health.lags[0] == pytest.approx(0.05)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 3), (0.99, 5), (1.0, 5)])
def test_a_quantile_is_a_sample(share: float, expected: float) -> None:
    assert quantile(deque([5.0, 1.0, 3.0, 2.0, 4.0]), share) == expected
    assert quantile(deque(), share) == 0.0
