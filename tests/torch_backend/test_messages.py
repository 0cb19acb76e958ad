"""Messages between two ranks over a fake engine: who receives from anybody, and what it hears of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ictp2p.collectives.channel import CallsDiffer, ParticipantLost
from ictp2p.errors import ConnectionLost
from ictp2p.torch_backend.engine import Engine, Step
from ictp2p.torch_backend.messages import Messages
from ictp2p.types import PeerId
from tests.bulk.conftest import run_turns

TIMEOUT = 3600.0
"""Seconds; far more than a test may take: who waits for it is never told."""


class Ranks:
    """An engine whose other ranks are there, and send nothing but what a test lets them begin."""

    def __init__(self, size: int) -> None:
        self.rank = 0
        self.size = size
        self.names = tuple(PeerId(f"{n:032x}") for n in range(size))
        self.begun: asyncio.Queue[int] = asyncio.Queue()

    async def first_sender(self, steps: Mapping[int, Step]) -> int:
        return await self.begun.get()

    async def reach(self, rank: int, timeout: float) -> None:
        pass

    async def receive(self, step: Step, data: Tensor, source: int) -> None:
        data.fill_(source)

    def refuse(self, step: Step, other: int, *, sending: bool) -> None:
        pass


@given(st.lists(st.tuples(st.sampled_from([None, 1]), st.integers(1, 9)), min_size=1, max_size=6))
def test_each_receive_ends_by_its_own_deadline_however_many_wait_before_it(calls: list[tuple[int | None, int]]) -> None:
    async def run() -> None:
        loop, messages = asyncio.get_running_loop(), Messages(cast("Engine", Ranks(2)))
        began, ends = loop.time(), [0.0] * (1 + len(calls))

        async def receive(number: int, source: int | None, seconds: int) -> None:
            with pytest.raises(TimeoutError):
                await messages.receive(torch.zeros(1), source, 0, float(seconds))
            ends[number] = loop.time() - began

        await asyncio.gather(*(receive(n, *call) for n, call in enumerate([(None, 10), *calls])))
        assert [round(each) for each in ends] == [seconds for _, seconds in [(None, 10), *calls]]

    run_turns(run())


class Sender(Ranks):
    """An engine with one other rank, whose messages begin when a test says so, and which notes what comes of each."""

    def __init__(self) -> None:
        super().__init__(2)
        self.sent = 0
        self.refused: set[int] = set()
        self._more = asyncio.Condition()

    async def send_another(self) -> None:
        async with self._more:
            self.sent += 1
            self._more.notify_all()

    async def first_sender(self, steps: Mapping[int, Step]) -> int:
        await self._begun(steps[1].number)
        return 1

    async def receive(self, step: Step, data: Tensor, source: int) -> None:
        try:
            async with asyncio.timeout(step.timeout):
                await self._begun(step.number)
        except TimeoutError:
            self.refused.add(step.number)
            raise
        data.fill_(step.number)

    def refuse(self, step: Step, other: int, *, sending: bool) -> None:
        assert step.number not in self.refused
        self.refused.add(step.number)

    async def _begun(self, number: int) -> None:
        async with self._more:
            await self._more.wait_for(lambda: self.sent >= number)


@given(
    st.lists(st.tuples(st.sampled_from([None, 1]), st.integers(0, 6), st.integers(1, 9)), min_size=1, max_size=7),
    st.lists(st.integers(0, 3), max_size=9),
)
def test_each_receive_gets_the_message_that_was_meant_for_it_or_has_it_refused(
    calls: list[tuple[int | None, int, int]], pauses: list[int]
) -> None:
    """Regression: one that waited behind another, or for anybody, left its message to the next when it gave up."""

    async def run() -> None:
        engine = Sender()
        messages, places = Messages(cast("Engine", engine)), [torch.zeros(1) for _ in calls]

        async def receive(number: int, source: int | None, seconds: int) -> bool:
            try:
                await messages.receive(places[number], source, 0, seconds + 0.5)
            except TimeoutError:
                return False
            return True

        async def send() -> None:
            for pause in pauses:
                await asyncio.sleep(pause)
                await engine.send_another()

        sending, receives = asyncio.ensure_future(send()), []
        for number, (source, pause, seconds) in enumerate(calls):
            await asyncio.sleep(pause)
            receives.append(asyncio.ensure_future(receive(number, source, seconds)))
            await asyncio.sleep(0)
        for number, (done, place) in enumerate(zip(await asyncio.gather(*receives), places, strict=True), 1):
            if done:
                assert place == number
        await sending
        await asyncio.sleep(100)
        for number, receive_ in enumerate(receives, 1):
            assert receive_.result() != (number in engine.refused)

    run_turns(run())


class Alone(Ranks):
    """An engine whose other rank sends nothing."""

    async def first_sender(self, steps: Mapping[int, Step]) -> int:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


@given(
    st.integers(1, 2),
    st.lists(st.tuples(st.sampled_from([None, 0]), st.integers(0, 6), st.integers(1, 9)), min_size=1, max_size=7),
    st.lists(st.integers(0, 6), max_size=9),
)
def test_what_a_rank_sends_to_itself_goes_to_the_receive_that_it_is_meant_for_or_to_none(
    size: int, calls: list[tuple[int | None, int, int]], pauses: list[int]
) -> None:
    """Regression: one that was given up left its message to the next, and one from anybody never saw it."""

    async def run() -> None:
        messages, places = Messages(cast("Engine", Alone(size))), [torch.zeros(1) for _ in calls]

        async def receive(number: int, source: int | None, seconds: int) -> bool:
            try:
                assert await messages.receive(places[number], source, 0, seconds + 0.5) == 0
            except TimeoutError:
                return False
            return True

        async def send(number: int) -> bool:
            """Whether somebody may have it."""
            try:
                await messages.send(torch.tensor([float(number)]), 0, 0, TIMEOUT)
            except ParticipantLost:
                return False
            return True

        async def send_all() -> list[bool]:
            sent = []
            for number, pause in enumerate(pauses, 1):
                await asyncio.sleep(pause)
                sent.append(await send(number))
            return sent

        sending, receives = asyncio.ensure_future(send_all()), []
        for number, (source, pause, seconds) in enumerate(calls):
            await asyncio.sleep(pause)
            receives.append(asyncio.ensure_future(receive(number, source, seconds)))
            await asyncio.sleep(0)
        received, sent = await asyncio.gather(*receives), await sending
        for number, (done, place) in enumerate(zip(received, places, strict=True), 1):
            assert place == (number if done else 0.0)
            assert not done or sent[number - 1], "who receives a message has not given it up"
        await asyncio.sleep(100)
        for number in range(len(sent) + 1, len(calls) + 3):
            assert await send(number) == (number > len(calls)), "what was given up fails at its sender, and no other"

    run_turns(run())


@pytest.mark.parametrize("length", [1, 4])
def test_a_message_to_itself_that_does_not_fit_is_an_error_as_any_that_does_not(length: int) -> None:
    """Regression: a shorter one was spread out over its place, without a word."""

    async def run() -> None:
        messages, place = Messages(cast("Engine", Ranks(1))), torch.zeros(3)
        await messages.send(torch.ones(length), 0, 0, TIMEOUT)
        with pytest.raises(CallsDiffer, match=f"calls send/recv of {length} bytes, not send/recv of 3 bytes"):
            await messages.receive(place, 0, 0, TIMEOUT)
        assert not place.any()

    run_turns(run())


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.booleans())
def test_what_waits_for_a_place_has_only_the_rest_of_its_time_for_itself(waits: list[int], sends: bool) -> None:
    """Regression: each stage of a message had the whole time again."""

    class Slow(Ranks):
        def __init__(self) -> None:
            super().__init__(2)
            self.given: list[float] = []

        async def receive(self, step: Step, data: Tensor, source: int) -> None:
            self.given.append(step.timeout)
            await asyncio.sleep(waits[len(self.given) - 1])

        async def send(self, step: Step, data: Tensor, target: int) -> None:
            await self.receive(step, data, target)

        async def awaited(self, step: Step, other: int, *, sending: bool) -> None:
            await asyncio.Event().wait()

    async def run() -> None:
        ranks = Slow()
        messages = Messages(cast("Engine", ranks))
        ways = [messages.send, messages.receive][:: 1 if sends else -1]
        await asyncio.gather(*(ways[0](torch.zeros(1), 1, 0, 100.0) for _ in waits))
        assert [round(each) for each in ranks.given] == [100 - sum(waits[:n]) for n in range(len(waits))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ictp2p.torch_backend.places.MOST", 1)
        run_turns(run())


async def settled() -> None:
    """Let whatever can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


@given(tags=st.sets(st.integers(0, 9), min_size=1), polite=st.booleans(), size=st.integers(2, 4))
def test_everyone_who_receives_from_anybody_hears_that_nobody_will_send(
    tags: set[int], polite: bool, size: int
) -> None:
    async def run() -> None:
        engine = Ranks(size)
        messages = Messages(cast("Engine", engine))
        receives = [asyncio.ensure_future(messages.receive(torch.zeros(1), None, tag, TIMEOUT)) for tag in tags]
        await settled()
        for rank in range(1, size) if polite else [1]:
            messages.lost(rank, ConnectionLost("reset"), polite)
        await settled()
        assert [receive.done() for receive in receives] == [True] * len(tags)
        for receive in receives:
            with pytest.raises(ParticipantLost):
                await receive

    asyncio.run(run())


async def test_a_rank_that_left_politely_ends_nobody_while_another_may_send() -> None:
    engine = Ranks(3)
    messages = Messages(cast("Engine", engine))
    receives = [asyncio.ensure_future(messages.receive(torch.zeros(1), None, tag, TIMEOUT)) for tag in (1, 2)]
    await settled()
    messages.lost(1, ConnectionLost("shut down"), polite=True)
    await settled()
    assert not any(receive.done() for receive in receives)
    engine.begun.put_nowait(2)
    engine.begun.put_nowait(2)
    assert await asyncio.gather(*receives) == [2, 2]


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["died", "left", "met"]))))
def test_who_is_connected_again_is_received_from_again(events: list[tuple[int, str]]) -> None:
    async def run() -> None:
        engine = Ranks(4)
        messages = Messages(cast("Engine", engine))
        last = dict.fromkeys(range(1, 4), "met")
        for rank, what in events:
            if what == "met":
                messages.met(rank)
            elif last[rank] == "met":
                messages.lost(rank, ConnectionLost("reset"), what == "left")
            last[rank] = what if what == "met" or last[rank] == "met" else last[rank]
        engine.begun.put_nowait(3)
        receive = messages.receive(torch.zeros(1), None, 1, TIMEOUT)
        dead = [engine.names[rank] for rank, what in last.items() if what == "died"]
        if dead or "met" not in last.values():
            with pytest.raises(ParticipantLost) as lost:
                await receive
            assert set(lost.value.suspects) <= set(dead)
        else:
            assert await receive == 3

    asyncio.run(run())
