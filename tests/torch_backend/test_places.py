"""Places of messages under way: bounded, in turn, for nobody who is wanted, and never lost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.torch_backend import places
from ictp2p.torch_backend.places import Places
from tests.bulk.conftest import run_turns

MOST = 2
TIMEOUT = 50.0
steps = st.lists(st.tuples(st.sampled_from(["come", "leave", "want", "cancel", "later"]), st.integers(0, 5)))


class Message:
    def __init__(self, lane: Places) -> None:
        self.wanted = asyncio.Event()
        self.began = asyncio.get_running_loop().time()
        self.task = asyncio.ensure_future(lane.enter(self._came, TIMEOUT))

    async def _came(self) -> None:
        await self.wanted.wait()

    @property
    def inside(self) -> bool:
        return self.task.done() and not self.task.cancelled() and self.task.exception() is None


async def follow(acts: list[tuple[str, int]]) -> None:
    lane, loop = Places(), asyncio.get_running_loop()
    under_way: list[Message] = []
    for act, number in acts:
        waiting = [each for each in under_way if not each.task.done()]
        inside = [each for each in under_way if each.inside]
        if act == "come":
            under_way.append(Message(lane))
        elif act == "leave" and inside:
            under_way.remove(inside[number % len(inside)])
            lane.leave()
        elif act == "want" and waiting:
            waiting[number % len(waiting)].wanted.set()
        elif act == "cancel" and waiting:
            waiting[number % len(waiting)].task.cancel()
        elif act == "later":
            await asyncio.sleep(TIMEOUT / 3)
        if number % 2:  # else the next act comes before anybody has heard of this one
            await settled()
    await settled()
    for each in [each for each in under_way if each.task.done() and not each.inside]:
        if not each.task.cancelled():
            with pytest.raises(TimeoutError):
                each.task.result()
            assert loop.time() >= each.began + TIMEOUT
        under_way.remove(each)
    waiting = [each for each in under_way if not each.task.done()]
    inside = [each for each in under_way if each.inside]
    assert lane._taken == len(inside)
    assert not waiting or len(inside) >= MOST, "nobody waits beside a free place"
    assert not any(each.wanted.is_set() for each in waiting)
    for _ in inside:
        lane.leave()
    while waiting:
        await settled()
        entered = [each for each in waiting if each.inside]
        assert entered, "whoever waits has its turn when those before it have left"
        assert entered == waiting[: len(entered)], "in turn"
        for each in entered:
            waiting.remove(each)
            lane.leave()
    assert lane._taken == 0


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@given(steps)
def test_nobody_waits_beside_a_free_place_or_while_wanted(acts: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "MOST", MOST)
        run_turns(follow(acts))


@given(st.integers(1, 9))
def test_of_those_that_nobody_wants_only_so_many_are_under_way(count: int) -> None:
    async def story() -> None:
        lane = Places()
        messages = [Message(lane) for _ in range(count)]
        await settled()
        assert sum(each.inside for each in messages) == min(count, MOST)
        for each in messages:
            each.task.cancel()
        await settled()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "MOST", MOST)
        run_turns(story())
