"""What says *not yet* to a connection, and when it may ask again; `test_limit` has the ceiling of several."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ictp2p.bulk.limit import Ceiling
from ictp2p.bulk.throttle import PACKETS, Throttle


class Sender:
    """Is asked to go on, and sends a frame of a thousand bytes then if it may."""

    def __init__(self) -> None:
        self.pumped = self.starved = 0
        self.full = False
        self.packets: list[float | None] = []
        self.outbound = SimpleNamespace(crowded=lambda: self.full, starve=self._starve)
        self.renewal = SimpleNamespace(pace=self._paced)

    def pump(self) -> None:
        self.pumped += 1

    def _starve(self) -> None:
        self.starved += 1

    def _paced(self, rate: float | None) -> bool:
        self.packets.append(rate)
        return True


def throttled() -> tuple[Throttle, Sender]:
    sender = Sender()
    return Throttle(sender, sender.outbound, sender.renewal, asyncio.get_running_loop().time), sender  # type: ignore[arg-type]


async def test_nothing_is_held_back_where_nothing_was_asked_for() -> None:
    throttle, sender = throttled()
    throttle.pace(None)
    assert not throttle.holds_back()
    assert (throttle.bucket, throttle.ceiling, sender.packets, sender.starved) == (None, None, [], 0)


async def test_memory_that_is_full_holds_back_whatever_the_pace() -> None:
    throttle, sender = throttled()
    sender.full = True
    assert throttle.holds_back()
    assert sender.starved == 0, "the link has nothing to do with it, but headers may still be on it"


async def test_who_is_paced_is_asked_again_when_a_frame_may_leave() -> None:
    throttle, sender = throttled()
    throttle.pace(10_000.0)
    assert (throttle.holds_back(), sender.pumped) == (False, 1)
    assert throttle.bucket is not None
    throttle.bucket.spend(1000)
    assert throttle.holds_back()
    assert throttle.holds_back(), "and one timer is enough"
    assert sender.starved == 2
    await asyncio.sleep(0.11)
    assert (throttle.holds_back(), sender.pumped) == (False, 2)


async def test_a_pace_that_is_raised_waits_for_no_timer_of_the_one_before() -> None:
    """Regression: what a collective at little had sent held up, for ten seconds, another that had much."""
    throttle, sender = throttled()
    throttle.pace(100.0)
    assert throttle.bucket is not None
    throttle.bucket.spend(1000)
    assert throttle.holds_back()
    throttle.pace(10_000.0)
    throttle.bucket.spend(1000)
    assert throttle.holds_back()
    asked = sender.pumped
    await asyncio.sleep(0.11)
    assert (throttle.holds_back(), sender.pumped) == (False, asked + 1)


async def test_a_pace_is_the_kernels_too_and_ends_for_both() -> None:
    throttle, sender = throttled()
    throttle.pace(10_000.0)
    throttle.pace(None)
    assert sender.packets == [PACKETS * 10_000.0, None]
    assert throttle.bucket is None


@pytest.mark.parametrize("what", ["pace", "ceiling"])
async def test_who_has_ended_is_asked_no_more_and_waits_for_no_turn(what: str) -> None:
    throttle, sender = throttled()
    ceiling = throttle.ceiling = Ceiling(10_000.0, asyncio.get_running_loop().time)
    ceiling.spend(1000)
    if what == "pace":
        throttle.ceiling = None
        throttle.pace(10_000.0)
        assert throttle.bucket is not None
        throttle.bucket.spend(1000)
    assert throttle.holds_back()
    throttle.end()
    asked = sender.pumped
    await asyncio.sleep(0.2)
    throttle.pace(None)
    assert sender.pumped == asked
