"""A state that is fetched over several connections to a provider: kept where they gain, whatever becomes of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.bulk import tuning
from ictp2p.bulk.lanes import LONG
from ictp2p.bulk.stripes import COUNT, MOST
from ictp2p.collectives.running.execute import all_reduce
from ictp2p.runtime import fetch_lanes
from ictp2p.runtime.state_fetch import fetch_state
from ictp2p.runtime.state_provider import Here, serve_state
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.state.manifest import CHUNK
from ictp2p.sync.state.transfer import TransferProfile
from ictp2p.sync.values import StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import PeerId
from tests.bulk.conftest import PROFILE, MemoryTransport, Mesh, run_turns
from tests.bulk.reducing import contribution, plan_of, reduce_all, tag

Meshes = Callable[..., Mesh]
CHUNKS = 60
STEP = 1_000
"""Bytes that a connection carries in a turn: a chunk takes a thousand, 20 ms."""
QUICK = TransferProfile(horizon=0.1)


@pytest.fixture(autouse=True)
def long_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: True)


class Slow(Mesh):
    """Connections that carry little, each for itself, or, `shared`, all between two peers together."""

    shared = False

    async def dial(self, me: PeerId, peer: PeerId, timeout: float) -> asyncio.Transport:
        made = await super().dial(me, peer, timeout)
        between = [end for a, b, end in self.links if {a, b} == {me, peer} and not end._ended]
        for end in between:
            end.step = end.other.step = STEP // (len(between) if self.shared else 1)
        return made


class Fetching:
    """The first peer fetches what the second one holds."""

    def __init__(self, world: Mesh, chunks: int = CHUNKS) -> None:
        self.world = world
        self.tensor = torch.arange(chunks * CHUNK // 4, dtype=torch.float32)
        held, self.state = (GlobalState([entry("weight", self.tensor)]) for _ in range(2))
        held.tentative["weight"].copy_(self.tensor)
        held.seal({})
        held.commit(7)
        self.ours, self.theirs = (world.bulks[peer] for peer in world.names[:2])
        serve_state(self.theirs, Here(held))
        self.ref = StateRef(7, held.digest, (self.theirs.me,))

    async def run(self) -> float:
        """The seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await fetch_state(self.ours, self.ref, self.state, Telemetry(loop.time), loop.time, QUICK)
        assert torch.equal(self.state.committed["weight"], self.tensor)
        return loop.time() - began

    async def until_widened(self) -> list[MemoryTransport]:
        """The ends of the further connections that are made, once they carry something."""
        while len(self.ours._pool) < COUNT:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        return [end for _, _, end in self.world.links[1:]]

    def connections(self) -> list[int]:
        return [len(self.ours._pool), len(self.theirs._pool)]


async def test_where_several_carry_more_they_are_used_and_ended_with_the_fetch() -> None:
    world = Slow(2)
    one = Slow(2, profile=replace(PROFILE, stripes=False))
    alone, together = await Fetching(one).run(), Fetching(world)
    assert await together.run() < 0.7 * alone
    await asyncio.sleep(0.01)
    assert together.connections() == [1, 1]
    assert (len(one.links), len(world.links)) == (1, COUNT)
    await one.close()
    await world.close()


@pytest.mark.parametrize(("long", "expected"), [(0.2, [0, 1, COUNT, 2 * COUNT, MOST]), (60.0, [0, 1, COUNT])])
async def test_as_long_as_more_carry_more_and_much_is_left_there_are_more(
    long: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_lanes, "LONG", long)
    world, tried = Slow(2), list[int]()
    fetching = Fetching(world, 7 * CHUNKS)
    task = asyncio.ensure_future(fetching.run())
    while not task.done():
        tried.append(len(fetching.ours._pool))
        await asyncio.sleep(0.02)
    await task
    assert list(dict.fromkeys(tried)) == expected
    await asyncio.sleep(0.01)
    assert fetching.connections() == [1, 1]
    await world.close()


class Narrow(Slow):
    """Connections that carry little each, and four of them as much as the line does."""

    async def dial(self, me: PeerId, peer: PeerId, timeout: float) -> asyncio.Transport:
        made = await super().dial(me, peer, timeout)
        between = [end for a, b, end in self.links if {a, b} == {me, peer} and not end._ended]
        for end in between:
            end.step = end.other.step = min(STEP, COUNT * STEP // len(between))
        return made


async def test_what_gained_before_stays_where_more_does_not_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_lanes, "LONG", 0.2)
    world, held = Narrow(2), list[int]()
    fetching = Fetching(world, 4 * CHUNKS)
    task = asyncio.ensure_future(fetching.run())
    while not task.done():
        before = [end.step for _, _, end in world.links]
        written = [each.written for each in fetching.theirs._pool.among(fetching.ours.me)]
        await asyncio.sleep(0.2)
        now = [each.written for each in fetching.theirs._pool.among(fetching.ours.me)]
        if len(before) == 2 * COUNT == len(now) == len(written):
            held.append(sum(after > was for after, was in zip(now, written, strict=True)))
    await task
    assert held[-2] == COUNT, "of eight"
    await world.close()


async def test_what_has_far_to_go_is_worth_a_trial_over_a_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks does not know that a buffer bounds it: it is the other end's."""
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: False)
    world = Slow(2)
    a, b = world.names
    lanes = world.bulks[a].lanes
    first = await world.bulks[a].connection(b, 5)
    for seconds, far in itertools.product((LONG, 0.9 * LONG), (0.0, 0.1)):
        first.transport._extra = {"round_trip": far}
        assert lanes.promising(b, 1e6, seconds) == (far > 0 and seconds >= LONG)
    await world.close()


async def test_where_the_line_is_full_they_are_let_go() -> None:
    world, told = Slow(2), list[bool]()
    world.shared = True
    fetching = Fetching(world)
    task = asyncio.ensure_future(fetching.run())
    ends = await fetching.until_widened()
    while not task.done():
        before = [end.step for end in ends]
        await asyncio.sleep(0.2)
        told.append(before == [end.step for end in ends] and not any(end.other.get_write_buffer_size() for end in ends))
    await task
    assert told[-2], "nothing comes over them any more, while the fetch goes on"
    await world.close()


@pytest.mark.parametrize("lost", [(1,), (2, 3), (1, 2, 3), (0,), (0, 1, 2, 3)])
async def test_nothing_is_lost_with_a_connection(lost: tuple[int, ...]) -> None:
    """Nor with the first one: what it owed is asked for again."""
    world = Slow(2)
    fetching = Fetching(world)
    task = asyncio.ensure_future(fetching.run())
    await fetching.until_widened()
    for number in lost:
        world.links[number][2].reset()
    async with asyncio.timeout(60):
        await task
    await world.close()


async def test_who_is_cancelled_again_while_it_ends_lets_them_go_all_the_same() -> None:
    """Regression: they stayed open until the other end closed them."""
    world = Slow(2)
    fetching = Fetching(world)
    task = asyncio.ensure_future(fetching.run())
    await fetching.until_widened()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.01)
    assert fetching.connections() == [1, 1]
    await world.close()


async def test_what_begins_during_a_fetch_outlasts_it() -> None:
    """Regression: it began on one that was made for the fetch, since the lower id had dialed that, and no other one."""
    world = Slow(2)
    fetching = Fetching(world)
    theirs = await fetching.theirs.connection(fetching.ours.me, 5.0)
    task = asyncio.ensure_future(fetching.run())
    while len(fetching.theirs._pool) < 2:
        await asyncio.sleep(0)
    elements = 100_000
    inputs = [contribution(n, [(elements,)], torch.float32) for n in range(2)]
    plan = plan_of(list(world.names), "star", elements, 10_000)
    reduced = await reduce_all(world, plan, inputs, [[torch.zeros(elements)] for _ in range(2)])
    assert not [each for each in reduced if isinstance(each, BaseException)]
    await task
    await asyncio.sleep(0.01)
    assert len(world.links) == COUNT
    assert fetching.connections() == [1, 1], "the others have gone with the fetch"
    assert fetching.theirs._pool.warm(fetching.ours.me) is theirs
    await world.close()


turns = st.integers(0, 30)


@given(turns, turns, turns, st.booleans())
@example(0, 0, 0, False)
@settings(max_examples=40, deadline=None)
def test_nobody_begins_anything_on_what_may_end_in_the_next_instant(
    begins: int, ends: int, learns: int, asked: bool
) -> None:
    """Regression: one end had lost the first one, and took for that what the other had for itself, and then ended."""

    async def story() -> None:
        world = Mesh(2)
        a, b = world.names
        ours, theirs = world.bulks[a], world.bulks[b]
        first = await ours.connection(b, 5)
        if asked:
            world.block((0, 1))
        lanes = [each async for each in ours.lanes.opened(b, ())]
        assert len(lanes) == COUNT - 1
        plan, broken = plan_of([a, b], "star", 20_000, 1_000), asyncio.Event()
        given = [contribution(n, [(20_000,)], torch.float32) for n in range(2)]

        async def pause(count: int) -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        async def reduce(n: int) -> None:
            if n == 1:
                await pause(begins)
            else:
                await broken.wait()
            await all_reduce(plan, n, given[n], [torch.zeros(20_000)], world.bulks[world.names[n]], tag(plan))

        async def end_and_learn() -> None:
            await pause(ends)
            ours.lanes.close(b, lanes)
            await pause(learns)
            first.connection_lost(ConnectionResetError())
            broken.set()

        there = theirs._pool.warm(a)
        assert there is not None
        there.connection_lost(ConnectionResetError())
        await asyncio.gather(reduce(0), reduce(1), end_and_learn())
        await world.close()

    run_turns(story())


async def test_what_our_own_chunks_go_over_is_used_and_stays() -> None:
    world = Slow(2)
    fetching = Fetching(world)
    await fetching.ours.probe(fetching.theirs.me, 8_000_000, timeout=60)
    assert len(world.links) == COUNT
    await fetching.run()
    assert fetching.connections() == [COUNT, COUNT]
    assert len(world.links) == COUNT
    await world.close()
