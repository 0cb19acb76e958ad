"""Several connections to one peer: kept where they gain, and what goes over them."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.bulk import tuning
from ictp2p.bulk.collective import LITTLE, Hold
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Header, Kind
from ictp2p.bulk.hub import Bulk
from ictp2p.bulk.probing import _Blasts
from ictp2p.bulk.streams import PROBE_CHUNK
from ictp2p.bulk.stripes import COUNT, LEAST, MOST, Stripe
from ictp2p.collectives.channel import ParticipantLost
from ictp2p.collectives.execute import Stats, all_reduce, broadcast
from ictp2p.collectives.plan import BROADCAST, Plan, Share
from ictp2p.errors import ConnectionLost, Unreachable
from ictp2p.torch_backend.engine import CHUNK, Engine, Step
from ictp2p.types import PeerId
from tests.bulk.conftest import PROFILE, MemoryTransport, Mesh, run_turns
from tests.bulk.reducing import PROFILE as REDUCING
from tests.bulk.reducing import contribution, plan_of, reduce_all, tag
from tests.garbage import uncollected

Meshes = Callable[..., Mesh]
SIZE = 8_000_000


@pytest.fixture(autouse=True)
def long_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: True)


class OneLine(Mesh):
    """All connections between two peers share one line."""

    async def dial(self, me: PeerId, peer: PeerId, timeout: float) -> asyncio.Transport:
        made = await super().dial(me, peer, timeout)
        between = [end for a, b, end in self.links if {a, b} == {me, peer} and not end._ended]
        for end in between:
            end.step = end.other.step = MemoryTransport().step // len(between)
        return made


def beside(bulk: Bulk, peer: PeerId) -> tuple[BulkConnection, ...]:
    first = bulk._pool.warm(peer)
    assert first is not None
    return bulk.probing.stripes.beside(first)


async def test_a_way_on_which_several_carry_more_is_striped(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    alone = await replace_profile(world, a).probe(b, SIZE, timeout=5)
    world.bulks[a].profile = PROFILE
    together = await world.bulks[a].probe(b, SIZE, timeout=5)
    assert together.size / together.seconds > 3 * alone.size / alone.seconds
    assert len(beside(world.bulks[a], b)) == COUNT - 1
    assert beside(world.bulks[b], a) == (), "each end stripes what it sends"
    again = await world.bulks[a].probe(b, SIZE, timeout=5)
    assert again.size / again.seconds > 3 * alone.size / alone.seconds
    assert len(world.links) == COUNT
    heard = [sample[3:] for sample in world.samples if sample[2] == "in"]
    assert [sample[3:] for sample in world.samples if sample[2] == "out"] == [heard[0], heard[-2], heard[-1]]


def replace_profile(world: Mesh, me: PeerId) -> Bulk:
    world.bulks[me].profile = replace(PROFILE, stripes=False)
    return world.bulks[me]


async def test_a_way_whose_line_is_full_keeps_its_one_connection_and_is_not_tried_again() -> None:
    world = OneLine(2)
    a, b = world.names
    result = await world.bulks[a].probe(b, SIZE, timeout=5)
    assert not result.limited
    for _ in range(20):
        await asyncio.sleep(0)
    assert beside(world.bulks[a], b) == ()
    assert [len(bulk._pool) for bulk in world.bulks.values()] == [1, 1]
    await world.bulks[a].probe(b, SIZE, timeout=5)
    assert len(world.links) == COUNT
    assert len([sample for sample in world.samples if sample[2] == "out"]) == 2
    await world.close()


async def test_it_is_not_tried_without_a_reason(mesh: Meshes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: False)
    world = mesh(2)
    await world.bulks[world.names[0]].probe(world.names[1], SIZE, timeout=5)
    assert len(world.links) == 1


async def test_what_was_cut_short_says_nothing_and_is_tried_again(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    probing = asyncio.ensure_future(world.bulks[a].probe(b, SIZE, timeout=5))
    while len(world.links) < COUNT:
        await asyncio.sleep(0)
    while not (probing.done() or world.bulks[a].probing._sending):
        await asyncio.sleep(0)
    world.bulks[a].stop_probes()
    assert not (await probing).limited, "what one connection carried was measured"
    assert beside(world.bulks[a], b) == ()
    assert world.bulks[a].probing.undecided(b, SIZE, 1.0)
    assert not world.bulks[a].probing.undecided(b, LEAST - 1, 1.0), "who sends no more than this has nothing to gain"
    await world.bulks[a].probe(b, SIZE, timeout=5)
    assert len(beside(world.bulks[a], b)) == COUNT - 1
    assert not world.bulks[a].probing.undecided(b, SIZE, 1.0)


async def test_who_cannot_be_dialed_is_asked_to_dial(mesh: Meshes) -> None:
    world = mesh(2)
    world.block((0, 1))
    a, b = world.names
    await world.bulks[a].probe(b, SIZE, timeout=5)
    assert len(beside(world.bulks[a], b)) == COUNT - 1
    assert {link[:2] for link in world.links} == {(b, a)}


async def test_who_can_be_reached_no_more_is_measured_over_one(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    await world.bulks[a].connection(b, 5)
    world.block((0, 1))
    world.deaf.add(b)
    assert (await world.bulks[a].probe(b, SIZE, timeout=5)).size == SIZE - PROBE_CHUNK
    assert beside(world.bulks[a], b) == ()
    assert not world.bulks[a].probing.undecided(b, SIZE, 1.0), "it would be as vain the next time"
    with pytest.raises(Unreachable):
        await world.bulks[a]._pool.another(b)


async def test_a_trial_that_breaks_off_leaves_no_connection_behind(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    probing = asyncio.ensure_future(world.bulks[a].probe(b, SIZE, timeout=5))
    while len(world.links) < 3:
        await asyncio.sleep(0)
    world.block((0, 1), (1, 0))
    assert (await probing).size == SIZE - PROBE_CHUNK
    for _ in range(20):
        await asyncio.sleep(0)
    assert [len(bulk._pool) for bulk in world.bulks.values()] == [1, 1]


async def striped(world: Mesh) -> None:
    for a in world.names:
        for b in world.names:
            if a != b:
                await world.bulks[a].probe(b, SIZE, timeout=5)
                assert len(beside(world.bulks[a], b)) == COUNT - 1


@given(
    st.sampled_from(["star", "ring", "server"]),
    st.integers(2, 3),
    st.integers(1, 400_000),
    st.integers(1000, 50_000),
    st.booleans(),
    st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
def test_sums_are_right_however_chunks_overtake_each_other(
    kind: str, size: int, elements: int, chunk: int, sealed: bool, seed: int
) -> None:
    async def story() -> None:
        world = Mesh(size, profile=replace(PROFILE, sealed=sealed))
        await striped(world)
        chance = random.Random(seed)
        for _, _, end in world.links:
            end.step, end.other.step = chance.choice([500, 5000, 50_000]), chance.choice([500, 5000, 50_000])
        plan = plan_of(list(world.names), kind, elements, chunk)
        inputs = [contribution(n, [(elements,)], torch.float32) for n in range(size)]
        outputs = [[torch.zeros(elements)] for _ in range(size)]
        for each in await reduce_all(world, plan, inputs, outputs, op="sum"):
            if isinstance(each, BaseException):
                raise each
        expected: torch.Tensor = sum((given[0] for given in inputs), torch.zeros(elements))
        assert all(torch.equal(result[0], expected) for result in outputs)
        assert not any(bulk._users for bulk in world.bulks.values())
        await world.close()

    run_turns(story())


@pytest.mark.parametrize("room", [5 * CHUNK, 5 * CHUNK - 8])
async def test_a_message_of_a_process_group_is_whole_though_its_length_comes_last(mesh: Meshes, room: int) -> None:
    """The first chunk holds the length, and may be overtaken: what comes before it is judged once it is known."""
    world = mesh(2)
    await striped(world)
    a, b = world.names
    ends = [Engine(world.bulks[me], world.names, n, b"group") for n, me in enumerate(world.names)]
    first = world.bulks[a]._pool.warm(b)
    assert first is not None
    first.transport.frozen = True  # type: ignore[attr-defined]
    step, data, out = Step("send", 1, 5.0), torch.ones(5 * CHUNK).byte(), torch.zeros(room).byte()
    passing = [asyncio.ensure_future(each) for each in (ends[0].send(step, data, 1), ends[1].receive(step, out, 0))]
    while not (out[2 * CHUNK] or passing[1].done()):
        await asyncio.sleep(0)
    first.transport.frozen = False  # type: ignore[attr-defined]
    first.transport._wake()  # type: ignore[attr-defined]
    outcomes = await asyncio.gather(*passing, return_exceptions=True)
    if room == len(data):
        assert outcomes == [None, None]
        assert torch.equal(out, data)
    else:
        assert isinstance(outcomes[1], ParticipantLost), "by its length, or by a chunk that there is no room for"


async def written(world: Mesh, elements: int, connections: Sequence[BulkConnection]) -> list[int]:
    """The bytes that each of some connections takes while two reduce so many elements."""
    before = [each.written for each in connections]
    plan = plan_of(list(world.names), "star", elements, 10_000)
    inputs = [contribution(n, [(elements,)], torch.float32) for n in range(2)]
    outcomes = await reduce_all(world, plan, inputs, [[torch.zeros(elements)] for _ in range(2)])
    assert not any(isinstance(each, BaseException) for each in outcomes)
    return [each.written - was for each, was in zip(connections, before, strict=True)]


async def test_all_connections_carry_chunks_and_the_first_one_alone_what_is_small(mesh: Meshes) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    first = world.bulks[a]._pool.warm(b)
    assert first is not None
    carrying = [first, *beside(world.bulks[a], b)]
    for elements, expected in ((100, 1), (2_000_000, COUNT)):
        gone = await written(world, elements, carrying)
        assert sum(each > 0 for each in gone) == expected


async def test_nothing_goes_over_a_stripe_before_the_peer_has_begun(mesh: Meshes) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    plan = plan_of([a, b], "star", 20_000, 5_000)  # chunks that are small enough to go ahead
    inputs, outputs = contribution(0, [(20_000,)], torch.float32), [torch.zeros(20_000)]
    first = world.bulks[a]._pool.warm(b)
    assert first is not None
    first.pause_writing()  # something else has filled it
    before = [each.written for each in beside(world.bulks[a], b)]
    alone = asyncio.ensure_future(all_reduce(plan, 0, inputs, outputs, world.bulks[a], tag(plan), profile=REDUCING))
    while not world.bulks[a].collectives():
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert [each.written for each in beside(world.bulks[a], b)] == before
    first.resume_writing()
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)


async def test_a_stripe_that_is_lost_fails_what_goes_over_it_and_only_that(mesh: Meshes) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    plan = plan_of([a, b], "star", 2_000_000, 10_000)
    inputs = [contribution(n, [(2_000_000,)], torch.float32) for n in range(2)]
    outputs = [[torch.zeros(2_000_000)] for _ in range(2)]
    reducing = asyncio.ensure_future(reduce_all(world, plan, inputs, outputs))
    stripe = beside(world.bulks[a], b)[0]
    written = stripe.written
    while stripe.written < written + 100_000:
        await asyncio.sleep(0)
    stripe.transport.reset()  # type: ignore[attr-defined]
    assert [type(each) for each in await reducing] == [ParticipantLost] * 2
    assert len(beside(world.bulks[a], b)) == COUNT - 2
    again = await reduce_all(world, plan_of([a, b], "star", 2_000_000, 9_999), inputs, outputs, op="sum")
    assert not any(isinstance(each, BaseException) for each in again)
    assert torch.equal(outputs[0][0], outputs[1][0])


def copying(world: Mesh, source: int) -> tuple[list[asyncio.Future[Stats]], list[torch.Tensor]]:
    """Begin to copy a tensor from one of two to the other."""
    tensors = [torch.full((500_000,), float(n)) for n in range(2)]
    parents = (-1, 0) if source == 0 else (1, -1)
    share = Share(0, 500_000, source, (-1, -1), parents)
    plan = Plan(BROADCAST, tuple(world.names), (share,), 10_000, 0.0, 0.0)
    copies = [
        asyncio.ensure_future(broadcast(plan, n, [tensors[n]], world.bulks[me], tag(plan), profile=REDUCING))
        for n, me in enumerate(world.names)
    ]
    return copies, tensors


async def holding(bulk: Bulk) -> Hold:
    """What a collective that has just begun holds."""
    while not bulk.collectives():
        await asyncio.sleep(0)
    ((hold, _),) = bulk._users.values()
    assert isinstance(hold, Hold)
    return hold


def freeze(world: Mesh, but: BulkConnection, *, frozen: bool) -> None:
    for _, _, end in world.links:
        if but.transport not in (end, end.other):
            end.frozen = end.other.frozen = frozen
            end._wake()
            end.other._wake()


async def test_who_has_sent_all_may_close_one_connection_before_others_have_brought_theirs(mesh: Meshes) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    theirs = world.bulks[b]._pool.warm(a)
    assert theirs is not None
    freeze(world, but=theirs, frozen=True)
    copies, tensors = copying(world, 0)
    hold = await holding(world.bulks[a])
    while hold._receiver.owing_to(b) or hold.connection.pending:
        await asyncio.sleep(0)
    theirs.connection_lost(None)  # all is here that came over it, and then its end
    freeze(world, but=theirs, frozen=False)
    await copies[1]
    assert torch.equal(*tensors)
    copies[0].cancel()
    await asyncio.gather(*copies, return_exceptions=True)


async def test_who_has_sent_all_need_not_be_there_any_more_for_a_stripe_that_breaks_to_be_noticed(mesh: Meshes) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    stripe, theirs = beside(world.bulks[a], b)[0], world.bulks[b]._pool.warm(a)
    assert theirs is not None
    copies, _ = copying(world, 0)
    written = stripe.written
    while stripe.written < written + 200_000:
        await asyncio.sleep(0)
    ours: Any = stripe.transport
    ours.frozen, ours.get_write_buffer_size = True, lambda: 0  # our kernel has taken it, and keeps it
    await copies[0]
    ours.reset()
    with pytest.raises(ParticipantLost, match="reset: killed"):
        await copies[1]


async def test_who_only_waited_to_be_asked_for_more_has_ended_when_its_connection_is_closed(mesh: Meshes) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    ours = world.bulks[a]._pool.warm(b)
    assert ours is not None
    copies, _ = copying(world, 0)
    hold = await holding(world.bulks[a])
    while hold.inbound is None:
        await asyncio.sleep(0)
    for each in hold.connections:  # all are full, after the last chunk
        while hold.next_frame() is not None:
            pass
        each.pause_writing()
    hold._receiver.ended = asyncio.get_running_loop().create_future()  # type: ignore[attr-defined]
    ours.connection_lost(None)
    assert hold._receiver.ended.done()  # type: ignore[attr-defined]
    for copy in copies:
        copy.cancel()
    await asyncio.gather(*copies, return_exceptions=True)


@pytest.mark.parametrize(("error", "reason"), [(ConnectionResetError(), "reset"), (None, "closed by the other side")])
async def test_a_connection_that_broke_or_that_we_still_need_ends_the_collective(
    mesh: Meshes, error: Exception | None, reason: str
) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    plan = plan_of([a, b], "star", 500_000, 10_000)
    inputs = [contribution(n, [(500_000,)], torch.float32) for n in range(2)]
    theirs = world.bulks[b]._pool.warm(a)
    assert theirs is not None
    received = theirs.received
    if error is None:
        story = reduce_all(world, plan, inputs, [[torch.zeros(500_000)] for _ in range(2)])
    else:
        story = asyncio.wait_for(asyncio.gather(*copying(world, 0)[0], return_exceptions=True), None)  # b owes nothing
    reducing = asyncio.ensure_future(story)
    while theirs.received == received:
        await asyncio.sleep(0)
    theirs.connection_lost(error)
    outcome = (await reducing)[1]
    assert isinstance(outcome, ParticipantLost)
    assert reason in str(outcome)


async def test_what_is_paced_or_has_a_ceiling_goes_over_one_connection(mesh: Meshes) -> None:
    world = mesh(2, profile=replace(PROFILE, ceiling=1e9))
    await striped(world)
    a, b = world.names
    stripes = beside(world.bulks[a], b)
    assert await written(world, 500_000, stripes) == [0] * len(stripes)


async def told(world: Mesh, first: BulkConnection, seconds: float, *, limited: bool = True) -> None:
    """Let all connections have worked for so long, held back by buffers all the time or never, and the sender hear."""
    for _, _, end in world.links:
        for each in (end, end.other):
            each._extra = {"account": (seconds, seconds if limited else 0.0, 1.0)}
    bulk = world.bulks[world.names[0]]
    bulk.told(first, 1000, 0.1, False)
    while bulk._tasks:
        await asyncio.sleep(0)


async def test_there_are_twice_as_many_as_long_as_buffers_hold_all_of_them_back(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    for step, expected in enumerate((2, 4, 8, MOST, MOST), 1):
        await told(world, first, float(step))
        assert 1 + len(beside(world.bulks[a], b)) == expected
    assert beside(world.bulks[b], a) == (), "each end stripes what it sends"
    held = {each._outbound._most for each in (first, *beside(world.bulks[a], b))}
    assert held == {PROFILE.high_water * COUNT // MOST}, "together no more than few"
    first.hold(1)
    first.hold(None)
    assert first._outbound._most in held


async def test_there_are_no_more_where_the_line_is_the_bound_or_nobody_wants_several(mesh: Meshes) -> None:
    for options, limited in (({}, False), ({"stripes": False}, True), ({"ceiling": 1e9}, True)):
        world = mesh(2, profile=replace(PROFILE, **options))
        first = await world.bulks[world.names[0]].connection(world.names[1], 5)
        await told(world, first, 9.0, limited=limited)
        assert len(world.links) == 1


async def test_a_probe_goes_on_holding_little_though_more_are_made_or_lost(mesh: Meshes) -> None:
    world = mesh(2, profile=replace(PROFILE, high_water=16 * PROBE_CHUNK))
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    await told(world, first, 1.0)
    probing = asyncio.ensure_future(world.bulks[a].probe(b, SIZE, timeout=5))
    while first._outbound._most != PROBE_CHUNK:
        await asyncio.sleep(0)
    await told(world, first, 2.0)
    beside(world.bulks[a], b)[-1].transport.reset()  # type: ignore[attr-defined]
    await asyncio.sleep(0.001)
    assert not probing.done()
    assert first._outbound._most == PROBE_CHUNK
    await probing
    assert first._outbound._most == 16 * PROBE_CHUNK


async def test_what_could_be_made_stays_and_the_rest_is_tried_again_with_another_first_connection(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    await told(world, first, 1.0)
    widening = asyncio.ensure_future(told(world, first, 2.0))
    while len(world.links) < 3:
        await asyncio.sleep(0)
    world.block((0, 1))
    world.deaf.add(b)
    await widening
    assert len(beside(world.bulks[a], b)) == 2
    world.blocked.clear()
    await told(world, first, 3.0)
    assert len(beside(world.bulks[a], b)) == 2
    first.transport.reset()  # type: ignore[attr-defined]
    while not first.closed:
        await asyncio.sleep(0)
    second = world.bulks[a]._pool.warm(b)
    assert second is not None
    await told(world, second, 4.0)
    assert len(beside(world.bulks[a], b)) == 3, "two are left, of which one is the first one now"


async def test_another_one_that_ends_says_nothing_of_those_that_stay(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    await told(world, first, 100.0)
    await told(world, first, 200.0)
    others = beside(world.bulks[a], b)
    for lane in (None, await world.bulks[a]._pool.another(b)):
        if lane is not None:
            lane.hang_up(ConnectionLost("what was fetched is here"))
        for each in (first, *others):
            busy, held, _ = each.transport._extra.get("account", (0.0, 0.0, 1.0))  # type: ignore[attr-defined]
            each.transport._extra = {"account": (busy + 9.0, held, 1.0)}  # type: ignore[attr-defined]
        assert not world.bulks[a].probing.stripes.lacking(first), "the line is the bound by now"


@pytest.mark.parametrize("probes", [False, True])
async def test_nothing_is_kept_of_a_peer_that_dies_while_connections_to_it_are_made(mesh: Meshes, probes: bool) -> None:
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    making = asyncio.ensure_future(world.bulks[a].probe(b, SIZE, timeout=5) if probes else told(world, first, 1.0))
    while len(world.links) < 2:
        await asyncio.sleep(0)
    world.kill(1)
    await asyncio.gather(making, return_exceptions=True)
    stripes = world.bulks[a].probing.stripes
    assert not any((stripes._kept, stripes._tried, stripes._vain, stripes._headroom, stripes._opening))


@pytest.mark.parametrize("turns", range(6))
async def test_one_that_ends_as_soon_as_it_is_made_is_not_kept(mesh: Meshes, turns: int) -> None:
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    widening = asyncio.ensure_future(told(world, first, 1.0))
    while len(world.bulks[a]._pool) < 2:
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    world.links[1][2].reset()
    await widening
    while len(world.bulks[a]._pool) > 1:
        await asyncio.sleep(0)
    assert world.bulks[a].probing.stripes._kept == {}


async def test_a_trial_is_not_disturbed_nor_disturbs(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    probing = asyncio.ensure_future(world.bulks[a].probe(b, SIZE, timeout=5))
    while len(world.links) < COUNT:
        await asyncio.sleep(0)
    await told(world, first, 1.0)
    await probing
    assert len(beside(world.bulks[a], b)) == COUNT - 1
    assert len(world.links) == COUNT
    widening = asyncio.ensure_future(told(world, first, 2.0))
    while len(world.links) == COUNT:
        await asyncio.sleep(0)
    world.bulks[a].probing.stripes.lost(first)  # another one leads, as far as a trial is concerned
    assert not (await world.bulks[a].probe(b, LEAST, timeout=5)).limited
    await widening
    assert len(beside(world.bulks[a], b)) == 2 * COUNT - 1


async def test_what_the_other_end_makes_for_itself_is_not_taken_for_what_it_was_asked_for(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    world.block((0, 1))
    first = await world.bulks[a].connection(b, 5)
    lanes: list[BulkConnection] = []

    async def fetching() -> None:
        lanes.extend([each async for each in world.bulks[b].lanes.opened(a, ())])

    await asyncio.gather(fetching(), told(world, first, 1.0))
    (more,) = beside(world.bulks[a], b)
    assert more.transport not in [lane.transport.other for lane in lanes]  # type: ignore[attr-defined]
    assert len(world.links) == 1 + len(lanes) + 1
    world.bulks[b].lanes.close(a, lanes)
    while len(world.bulks[a]._pool) > 2:
        await asyncio.sleep(0)
    assert beside(world.bulks[a], b) == (more,)


class FarAway(Mesh):
    """To dial takes longer than one waits before one asks to be dialed."""

    async def dial(self, me: PeerId, peer: PeerId, timeout: float) -> asyncio.Transport:
        await asyncio.sleep(1.2 * PROFILE.patience)
        return await super().dial(me, peer, timeout)


async def test_where_dialing_takes_long_there_are_no_more_than_are_used() -> None:
    world = FarAway(2)
    a, b = world.names
    await world.bulks[a].connection(b, 5)
    await asyncio.gather(*world.tasks)
    before = len(world.links)
    for step in range(1, 6):
        first = world.bulks[a]._pool.warm(b)
        assert first is not None
        await told(world, first, float(step))
    await asyncio.gather(*world.tasks)
    await asyncio.sleep(0.1)
    assert len(world.links) > before + MOST, "it was asked as well"
    assert len(beside(world.bulks[a], b)) == MOST - 1
    assert [len(bulk._pool) for bulk in world.bulks.values()] == [before + MOST - 1] * 2
    await world.close()


async def test_a_collective_that_is_under_way_uses_those_that_are_made_meanwhile(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    plan = plan_of([a, b], "star", 2_000_000, 10_000)
    inputs = [contribution(n, [(2_000_000,)], torch.float32) for n in range(2)]
    outputs = [[torch.zeros(2_000_000)] for _ in range(2)]
    reducing = asyncio.ensure_future(reduce_all(world, plan, inputs, outputs, op="sum"))
    while first.written < 1_000_000:
        await asyncio.sleep(0)
    await told(world, first, 1.0)
    (more,) = beside(world.bulks[a], b)
    assert not any(isinstance(each, BaseException) for each in await reducing)
    assert more.written > 1_000_000
    assert torch.equal(outputs[0][0], inputs[0][0] + inputs[1][0])


async def test_what_goes_on_without_its_first_connection_is_told_of_all_others_though_more_were_being_made(
    mesh: Meshes,
) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    theirs = world.bulks[b]._pool.warm(a)
    assert theirs is not None
    freeze(world, but=theirs, frozen=True)
    copies, _ = copying(world, 0)
    hold, receiving = await holding(world.bulks[a]), await holding(world.bulks[b])
    while hold._receiver.owing_to(b) or hold.connection.pending:
        await asyncio.sleep(0)
    widening = asyncio.ensure_future(world.bulks[b]._widen(theirs))
    await asyncio.sleep(0)
    theirs.connection_lost(None)
    others = world.bulks[b]._pool.among(a)
    await widening
    carrying = next(each for each in others if each is not receiving.inbound and not each.dialed)
    assert carrying not in beside(world.bulks[b], a), "only the other end sends on it"
    carrying.connection_lost(ConnectionResetError("this one"))
    (outcome,) = await asyncio.gather(copies[1], return_exceptions=True)
    assert isinstance(outcome, ParticipantLost)
    assert "this one" in str(outcome), "at once, and not because nothing came for long"
    copies[0].cancel()
    await asyncio.gather(*copies, return_exceptions=True)


async def test_who_hears_of_a_transfer_while_it_is_being_closed_makes_no_more(mesh: Meshes) -> None:
    world = mesh(2)
    bulk = world.bulks[world.names[0]]
    first = await bulk.connection(world.names[1], 5)
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    closing = asyncio.ensure_future(bulk.close())
    await asyncio.sleep(0)
    await told(world, first, 1.0)
    await closing
    gc.collect()
    assert errors == []
    assert len(bulk._pool) == 0


async def test_a_collective_over_several_leaves_no_memory_to_the_garbage_collector(mesh: Meshes) -> None:
    world = mesh(2)
    await striped(world)
    with uncollected(Hold, Stripe) as left:
        await written(world, 500_000, ())
    assert left == []


async def test_one_that_is_paced_stays_on_its_connection(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    plan = plan_of([a, b], "star", 500_000, 10_000)
    inputs = [contribution(n, [(500_000,)], torch.float32) for n in range(2)]
    paced = replace(REDUCING, pace=True)
    reducing = [
        asyncio.ensure_future(
            all_reduce(plan, n, inputs[n], [torch.zeros(500_000)], world.bulks[me], tag(plan), profile=paced)
        )
        for n, me in enumerate(world.names)
    ]
    await holding(world.bulks[a])
    await told(world, first, 1.0)
    (more,) = beside(world.bulks[a], b)
    written = more.written
    await asyncio.gather(*reducing)
    assert more.written == written


async def test_whichever_holds_the_least_is_asked_first(mesh: Meshes) -> None:
    world = mesh(2)
    await striped(world)
    a, b = world.names
    asked: list[object] = []
    hold = Hold(*([None] * 3), world.bulks[a]._pool.warm(b), None, None)  # type: ignore[arg-type]
    hold.stripes = [Stripe(hold, each) for each in beside(world.bulks[a], b)]
    for each, size in zip(hold.connections, (3, 1, 4, 2), strict=True):
        each.kick = asked.append  # type: ignore[assignment]
        each.transport.frozen = True  # type: ignore[attr-defined]
        each.transport.write(bytes(size * LITTLE))
    hold.kick()
    assert asked == [hold.stripes[0], hold.stripes[2], hold, hold.stripes[1]]


def test_what_comes_after_the_end_of_a_probe_counts_for_nothing() -> None:
    blasts = _Blasts()
    assert blasts.add(Header(Kind.PROBE, b"a" * 16, second=300, length=100), 1.0) is None
    assert blasts.add(Header(Kind.PROBE, b"a" * 16, second=100, length=100), 2.0) is not None
    assert blasts.add(Header(Kind.PROBE, b"a" * 16, second=200, length=100), 3.0) is None
    assert not blasts._going
