"""Several connections to one peer: kept where they gain, and what goes over them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.bulk import tuning
from ictp2p.bulk.frames import Header, Kind
from ictp2p.bulk.hub import Bulk
from ictp2p.bulk.probing import _Blasts
from ictp2p.bulk.streams import PROBE_CHUNK, Probe, ProbeResult
from ictp2p.bulk.stripes import COUNT, LEAST
from ictp2p.bulk.users import Frame
from ictp2p.collectives.channel import ParticipantLost
from ictp2p.collectives.planning.candidates import CHUNK
from ictp2p.collectives.running.execute import all_reduce
from ictp2p.errors import Unreachable
from ictp2p.torch_backend.engine import Engine, Step
from ictp2p.types import PeerId
from tests.bulk.conftest import PROFILE, MemoryTransport, Mesh, run_turns
from tests.bulk.reducing import PROFILE as REDUCING
from tests.bulk.reducing import contribution, plan_of, reduce_all, tag
from tests.bulk.striping import SIZE, Meshes, all_sent, beside, copying, freeze, holding, striped, written


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
    heard = [(told.size, told.seconds, told.limited) for _, _, told in world.samples if told.direction == "in"]
    said = [(told.size, told.seconds, told.limited) for _, _, told in world.samples if told.direction == "out"]
    assert said == [heard[0], heard[-2], heard[-1]]


def replace_profile(world: Mesh, me: PeerId) -> Bulk:
    world.bulks[me].profile = replace(PROFILE, stripes=False)
    return world.bulks[me]


@pytest.mark.parametrize("theirs", [False, True])
async def test_a_way_whose_line_is_full_keeps_its_one_connection_and_is_not_tried_again(theirs: bool) -> None:
    world = OneLine(2)
    a, b = world.names
    if theirs:
        await world.bulks[b].connection(a, 5)
    result = await world.bulks[a].probe(b, SIZE, timeout=5)
    assert not result.limited
    for _ in range(20):
        await asyncio.sleep(0)
    assert beside(world.bulks[a], b) == ()
    assert [len(bulk._pool) for bulk in world.bulks.values()] == [1, 1]
    await world.bulks[a].probe(b, SIZE, timeout=5)
    assert len(world.links) == COUNT
    assert len([told for _, _, told in world.samples if told.direction == "out"]) == 2
    await world.close()


async def test_it_is_not_tried_without_a_reason(mesh: Meshes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: False)
    world = mesh(2)
    await world.bulks[world.names[0]].probe(world.names[1], SIZE, timeout=5)
    assert len(world.links) == 1


async def trying(world: Mesh, links: int) -> asyncio.Task[ProbeResult]:
    """Begin a probe that tries whether several connections carry more, until so many were dialed."""
    a, b = world.names
    probing = asyncio.create_task(world.bulks[a].probe(b, SIZE, timeout=5))
    while len(world.links) < links:
        await asyncio.sleep(0)
    return probing


async def test_what_was_cut_short_says_nothing_and_is_tried_again(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    probing = await trying(world, COUNT)
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


async def test_several_are_not_probed_where_probes_were_stopped_as_they_were_made(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    probing = await trying(world, 2)
    world.bulks[a].stop_probes()
    assert not (await probing).limited, "what one connection carried was measured"
    assert len([told for _, _, told in world.samples if told.direction == "in"]) == 1
    assert beside(world.bulks[a], b) == ()
    assert world.bulks[a].probing.undecided(b, SIZE, 1.0), "another probe finds out"


acts = st.lists(st.tuples(st.sampled_from(["probe", "reset", "stop", "block"]), st.integers(0, 60)), max_size=12)


@given(acts, st.booleans())
@settings(max_examples=30, deadline=None)
def test_what_trials_send_is_at_most_what_the_probes_before_them_were_granted(
    acts: list[tuple[str, int]], gains: bool
) -> None:
    """They are not paid for by themselves (`LinkProfile.probe_credit`): each follows a probe that is, of its size."""
    granted, sent = 0, list[int]()
    next_frame = Probe.next_frame

    def counted(probe: Probe) -> Frame | None:
        frame = next_frame(probe)
        sent.extend(len(view) for view in (frame.views if frame is not None else ()))
        return frame

    async def story() -> None:
        nonlocal granted
        world = Mesh(2) if gains else OneLine(2)
        a, b = world.names
        probing = list[asyncio.Future[object]]()
        for act, number in acts:
            if act == "probe":
                await asyncio.gather(*probing, return_exceptions=True)
                granted += 3 * LEAST
                probing = [asyncio.ensure_future(world.bulks[a].probe(b, 3 * LEAST, timeout=5))]
            elif act == "reset" and world.links:
                world.links[number % len(world.links)][2].reset()
            elif act == "stop":
                world.bulks[a].stop_probes()
            elif act == "block":
                world.blocked ^= {(a, b)}
            for _ in range(number):
                await asyncio.sleep(0)
        await asyncio.gather(*probing, return_exceptions=True)
        await world.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Probe, "next_frame", counted)
        patch.setattr(tuning, "may_gain", lambda transport, rate: True)
        run_turns(story())
    assert sum(sent) <= 2 * granted


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


async def test_what_one_connection_carried_was_heard_of_before_more_were_tried() -> None:
    """Regression: a link to who had lost its power in between counted as alive for as long as it was dialed in vain."""

    class Gone(Mesh):
        dialed: float | None = None

        async def dial(self, me: PeerId, peer: PeerId, timeout: float) -> asyncio.Transport:
            if self.links:
                self.dialed = self.dialed or asyncio.get_running_loop().time()
                await asyncio.sleep(0.01)
                raise Unreachable("it is no more")
            return await super().dial(me, peer, timeout)

    world = Gone(2)
    a, b = world.names
    world.deaf.add(b)
    await world.bulks[a].probe(b, SIZE, timeout=5)
    (told,) = (told for _, _, told in world.samples if told.direction == "out")
    assert world.dialed is not None
    assert told.ended <= world.dialed
    await world.close()


async def test_what_begins_during_a_trial_outlasts_it() -> None:
    """Regression: where the peer had dialed the first one, ours was preferred to it, and ended under a collective.

    Now neither end begins anything on ours.
    """
    world = OneLine(2)
    a, b = world.names
    theirs = await world.bulks[b].connection(a, 5)
    probing = asyncio.ensure_future(world.bulks[a].probe(b, SIZE, timeout=5))
    while len(world.bulks[a]._pool) < COUNT:
        await asyncio.sleep(0)
    elements = 1_000_000
    inputs = [contribution(n, [(elements,)], torch.float32) for n in range(2)]
    plan = plan_of(list(world.names), "star", elements, 10_000)
    reducing = reduce_all(world, plan, inputs, [[torch.zeros(elements)] for _ in range(2)])
    world.bulks[a].stop_probes()
    assert not any(isinstance(each, BaseException) for each in await reducing)
    assert not (await probing).limited
    for _ in range(20):
        await asyncio.sleep(0)
    assert [len(bulk._pool) for bulk in world.bulks.values()] == [1, 1]
    assert world.bulks[b]._pool.warm(a) is theirs
    await world.close()


async def test_a_trial_that_breaks_off_leaves_no_connection_behind(mesh: Meshes) -> None:
    world = mesh(2)
    probing = await trying(world, 3)
    world.block((0, 1), (1, 0))
    assert (await probing).size == SIZE - PROBE_CHUNK
    for _ in range(20):
        await asyncio.sleep(0)
    assert [len(bulk._pool) for bulk in world.bulks.values()] == [1, 1]


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
    outcomes = await reducing
    assert [type(each) for each in outcomes] == [ParticipantLost] * 2
    assert "gave up" not in str(outcomes[0]), "who sent there has it from that connection, not from the other end"
    assert len(beside(world.bulks[a], b)) == COUNT - 2
    again = await reduce_all(world, plan_of([a, b], "star", 2_000_000, 9_999), inputs, outputs, op="sum")
    assert not any(isinstance(each, BaseException) for each in again)
    assert torch.equal(outputs[0][0], outputs[1][0])


async def test_who_has_sent_all_may_close_one_connection_before_others_have_brought_theirs(mesh: Meshes) -> None:
    world = mesh(2)
    theirs, copies, tensors = await all_sent(world)
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


def test_what_comes_after_the_end_of_a_probe_counts_for_nothing() -> None:
    blasts = _Blasts()
    assert blasts.add(Header(Kind.PROBE, b"a" * 16, second=300, length=100), 1.0) is None
    assert blasts.add(Header(Kind.PROBE, b"a" * 16, second=100, length=100), 2.0) is not None
    assert blasts.add(Header(Kind.PROBE, b"a" * 16, second=200, length=100), 3.0) is None
    assert not blasts._going
