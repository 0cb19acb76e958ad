"""More connections to a peer, as long as buffers hold back those that there are (`ictp2p.bulk.headroom`)."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest
import torch

from ictp2p.bulk import tuning
from ictp2p.bulk.account import Account
from ictp2p.bulk.collective import LITTLE, Hold
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.streams import PROBE_CHUNK
from ictp2p.bulk.stripes import AGAIN, COUNT, LEAST, MOST, Stripe
from ictp2p.collectives.channel import ParticipantLost
from ictp2p.collectives.running.execute import all_reduce
from ictp2p.errors import ConnectionLost
from ictp2p.types import PeerId
from tests.bulk.conftest import PROFILE, Mesh
from tests.bulk.reducing import PROFILE as REDUCING
from tests.bulk.reducing import contribution, plan_of, reduce_all, tag
from tests.bulk.striping import SIZE, Meshes, all_sent, beside, holding, striped, written
from tests.garbage import uncollected


@pytest.fixture(autouse=True)
def long_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: True)


async def told(world: Mesh, first: BulkConnection, seconds: float, *, limited: bool = True) -> None:
    """Let all connections have worked for so long, held back by buffers all the time or never, and the sender hear."""
    for _, _, end in world.links:
        for each in (end, end.other):
            each._extra = {"account": Account(seconds, seconds if limited else 0.0, 1.0, 0.1, 0.0, 0.0)}
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
    first.backlog.hold(1)
    first.backlog.hold(None)
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
    assert world.bulks[a]._pool.warm(b) is None, "none of those that one end has for itself"
    await told(world, await world.bulks[a].connection(b, 5), 4.0)
    assert len(beside(world.bulks[a], b)) == 5, "two were left, and as many as there were then came"


async def test_what_could_not_be_made_is_tried_again_after_a_while(mesh: Meshes) -> None:
    """Regression: where it had failed once there were no more for as long as the first connection lived."""
    world = mesh(2)
    a, b = world.names
    first = await world.bulks[a].connection(b, 5)
    world.block((0, 1))
    world.deaf.add(b)
    await told(world, first, 1.0)
    world.blocked.clear()
    await told(world, first, 2.0)
    assert beside(world.bulks[a], b) == ()
    await asyncio.sleep(AGAIN)
    await told(world, first, 3.0)
    assert len(beside(world.bulks[a], b)) == 1


async def test_one_that_comes_in_the_turn_in_which_it_was_given_up_stays_at_neither_end(mesh: Meshes) -> None:
    """Regression: nobody waited for it any more, and that was not known yet when it came."""
    world = mesh(2)
    a, b = world.names
    await world.bulks[a].connection(b, 5)
    world.block((0, 1))
    pool = world.bulks[a]._pool
    making = asyncio.ensure_future(pool._reaching._asked_for_one_more(b))
    confirmed = pool.confirmed

    def told_at_last(connection: BulkConnection) -> None:
        confirmed(connection)
        making.cancel()

    pool.confirmed = told_at_last
    with pytest.raises(asyncio.CancelledError):
        await making
    await asyncio.sleep(1)
    assert [len(world.bulks[me]._pool) for me in world.names] == [1, 1]
    assert not pool._reaching._late, "it has come"


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
            counted = each.transport._extra.get("account", Account(0.0, 0.0, 1.0, 0.1, 0.0, 0.0))  # type: ignore[attr-defined]
            each.transport._extra = {"account": counted._replace(busy=counted.busy + 9.0)}  # type: ignore[attr-defined]
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
    assert more is not first
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
    a, b = world.names
    theirs, copies, _ = await all_sent(world)
    receiving = await holding(world.bulks[b])
    widening = asyncio.ensure_future(world.bulks[b].attaching.widen(theirs))
    await asyncio.sleep(0)
    theirs.connection_lost(None)
    others = world.bulks[b]._pool.among(a)
    await widening
    carrying = next(each for each in others if each is not receiving.inbound and not each.dialed)
    assert not world.bulks[b].probing.stripes.has(a, carrying), "only the other end sends on it"
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
