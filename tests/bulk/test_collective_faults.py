"""Deaths, delays and aborts in the middle of a collective: nobody hangs, and no tensor is touched afterwards."""

from __future__ import annotations

import asyncio
import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from ictp2p.bulk import BulkProfile, kernel
from ictp2p.bulk.collective import Attached, Hold
from ictp2p.bulk.frames import Header, Kind, read_header
from ictp2p.bulk.inbound import CHUNKS, Inbound
from ictp2p.collectives.channel import CollectiveTimeout, ParticipantLost, RoundTag
from ictp2p.collectives.plan import Plan
from ictp2p.collectives.running.execute import Stats, all_reduce
from ictp2p.collectives.running.session import Session
from ictp2p.errors import IctError
from ictp2p.types import PeerId
from tests.bulk.conftest import TURN
from tests.bulk.reducing import KINDS, PROFILE, contribution, plan_of, reduce_all, tag
from tests.bulk.test_collective import Meshes

HARMS = ["kill", "stop"]


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("at", [0.0, 0.02, 0.3, 0.6, 0.9, 0.999])
async def test_one_death_at_any_moment_hangs_nobody_and_corrupts_nothing(
    mesh: Meshes, kind: str, harm: str, at: float
) -> None:
    world = mesh(4)
    elements = 40_000
    inputs = [contribution(n, [(elements,)], torch.float32) for n in range(4)]
    outputs = [[torch.zeros(elements)] for _ in range(4)]
    plan = plan_of(world.names, kind, elements, 500)
    progress = 0

    def count(start: int, stop: int) -> None:
        nonlocal progress
        progress += stop - start
        if progress >= at * 4 * elements and victim not in harmed:
            harmed.add(victim)
            asyncio.get_running_loop().call_soon(getattr(world, harm), victim)

    victim, harmed = 1, set[int]()
    for me in world.names:
        for peer in world.names:
            if me < peer:
                await world.bulks[me].connection(peer, 1)
    for _, _, end in world.links:
        end.step = end.other.step = 1500
    if not at:
        harmed.add(victim)
        getattr(world, harm)(victim)
    began = asyncio.get_running_loop().time()
    profile = replace(PROFILE, connect=0.5, start=0.5)
    tasks = [
        asyncio.ensure_future(
            all_reduce(
                plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan), op="sum", progress=count, profile=profile
            )
        )
        for n, me in enumerate(world.names)
    ]
    survivors = [task for n, task in enumerate(tasks) if n != victim]
    results = await asyncio.gather(*survivors, return_exceptions=True)
    tasks[victim].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert asyncio.get_running_loop().time() - began < PROFILE.total / 4, "not for a deadline"
    expected = sum(each[0] for each in inputs)
    for n, result in zip([n for n in range(4) if n != victim], results, strict=True):
        if isinstance(result, Stats):
            assert torch.equal(outputs[n][0], expected)
        else:
            assert isinstance(result, ParticipantLost | CollectiveTimeout), repr(result)
            assert result.suspects == (world.names[victim],), repr(result)
        assert torch.equal(inputs[n][0], contribution(n, [(elements,)], torch.float32)[0])
    if at <= 0.3:
        assert not any(isinstance(result, Stats) for result in results)
    assert not any(bulk._users for n, bulk in enumerate(world.bulks.values()) if n != victim)


async def test_the_next_attempt_without_the_dead_succeeds_on_the_same_connections(mesh: Meshes) -> None:
    world = mesh(3)
    inputs = [[torch.full((5000,), float(n + 1))] for n in range(3)]
    outputs = [[torch.zeros(5000)] for _ in range(3)]
    plan = plan_of(world.names, "star", 5000, 100)
    attempt = asyncio.ensure_future(reduce_all(world, plan, inputs, outputs, op="sum"))
    while not outputs[0][0].any():
        await asyncio.sleep(0)
    world.kill(2)
    assert all(isinstance(result, IctError) for result in await attempt)
    dialed = len(world.links)
    survivors = world.names[:2]
    again = plan_of(survivors, "star", 5000, 100)
    await asyncio.gather(
        *(
            all_reduce(again, n, inputs[n], outputs[n], world.bulks[me], tag(again, 1), op="sum", profile=PROFILE)
            for n, me in enumerate(survivors)
        )
    )
    assert all(bool((outputs[n][0] == 3).all()) for n in range(2))
    assert len(world.links) == dialed


async def test_frames_of_another_attempt_are_never_taken(mesh: Meshes) -> None:
    world = mesh(2)
    inputs = [[torch.full((3000,), float(n + 1))] for n in range(2)]
    outputs = [[torch.zeros(3000)] for _ in range(2)]
    plan = plan_of(world.names, "star", 3000, 100)
    profile = replace(PROFILE, start=0.3)
    results = await asyncio.gather(
        *(
            all_reduce(plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan, n), op="sum", profile=profile)
            for n, me in enumerate(world.names)
        ),
        return_exceptions=True,
    )
    assert all(isinstance(result, CollectiveTimeout) for result in results), results
    assert [result.suspects for result in results] == [(world.names[1],), (world.names[0],)]  # type: ignore[union-attr]
    assert not any(out.any() for (out,) in outputs)


@pytest.mark.parametrize("sealed", [True, False])
async def test_chunks_of_an_attempt_that_is_over_are_dropped(mesh: Meshes, sealed: bool) -> None:
    world = mesh(2, profile=BulkProfile(sealed=sealed))
    inputs = [[torch.full((300,), float(n + 1))] for n in range(2)]
    outputs = [[torch.zeros(300)] for _ in range(2)]
    plan = plan_of(world.names, "star", 300, 50)
    a, b = world.names
    connection = await world.bulks[a].connection(b, 1)
    waiting = asyncio.ensure_future(
        all_reduce(plan, 1, inputs[1], outputs[1], world.bulks[b], tag(plan, 1), op="sum", profile=PROFILE)
    )
    while not world.bulks[b]._users:
        await asyncio.sleep(0)
    old = torch.full((50,), 1e6).numpy().tobytes()
    connection.send(Kind.PARTIAL, tag(plan, 0).wire(), 1, 0, old)
    connection.send(Kind.RESULT, tag(plan, 0).wire(), 0, 0, old)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not outputs[1][0].any()
    await all_reduce(plan, 0, inputs[0], outputs[0], world.bulks[a], tag(plan, 1), op="sum", profile=PROFILE)
    await waiting
    assert all(bool((out == 3).all()) for (out,) in outputs)


async def test_who_comes_late_finds_the_others_waiting(mesh: Meshes) -> None:
    world = mesh(3)
    inputs = [[torch.full((3000,), float(n + 1))] for n in range(3)]
    outputs = [[torch.zeros(3000)] for _ in range(3)]
    plan = plan_of(world.names, "ring", 3000, 100)

    async def late(n: int) -> Stats:
        await asyncio.sleep(0.6 * (n == 1))  # longer than the stall deadline
        return await all_reduce(
            plan, n, inputs[n], outputs[n], world.bulks[world.names[n]], tag(plan), op="sum", profile=PROFILE
        )

    await asyncio.gather(*(late(n) for n in range(3)))
    assert all(bool((out == 6).all()) for (out,) in outputs)


async def test_a_participant_slower_than_the_stall_deadline_is_not_blamed(mesh: Meshes) -> None:
    world = mesh(3, profile=BulkProfile(stall=0.3, handshake=1.0, patience=0.05, high_water=4096))
    inputs = [[torch.full((30_000,), float(n + 1))] for n in range(3)]
    outputs = [[torch.zeros(30_000)] for _ in range(3)]
    plan = plan_of(world.names, "ring", 30_000, 10_000)
    bulks = list(world.bulks.values())
    for me, peer in ((0, 1), (1, 2), (0, 2)):
        await bulks[me].connection(world.names[peer], 1)
    for end in world.ends(1):
        end.step = end.other.step = 1
    began = asyncio.get_running_loop().time()
    results = await reduce_all(world, plan, inputs, outputs, op="sum")
    assert asyncio.get_running_loop().time() - began > 0.3
    assert all(isinstance(result, Stats) for result in results), results
    assert all(bool((out == 6).all()) for (out,) in outputs)


async def test_a_participant_may_leave_once_nobody_needs_it(mesh: Meshes) -> None:
    world = mesh(3)
    inputs = [[torch.ones(30_000)] for _ in range(3)]
    outputs = [[torch.zeros(30_000)] for _ in range(3)]
    plan = plan_of(world.names, "star", 30_000, 100)

    async def leave_at_once(n: int) -> Stats:
        me = world.names[n]
        stats = await all_reduce(plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan), op="sum", profile=PROFILE)
        await world.bulks[me].close()
        return stats

    await asyncio.gather(*(leave_at_once(n) for n in range(3)))
    assert all(bool((out == 3).all()) for (out,) in outputs)


async def two_ways(mesh: Meshes) -> Any:
    """Two participants that dialed each other at once, so that each sends on the connection that it dialed."""
    world = mesh(2)
    a, b = world.names
    await world.bulks[a].connection(b, 1)
    await world.bulks[b]._pool._reaching.first(a)
    world.bulks[b]._pool._ready[a].reverse()
    return world


async def test_who_sends_on_another_connection_is_not_taken_for_silent_on_this_one(mesh: Meshes) -> None:
    world = await two_ways(mesh)
    inputs = [[torch.ones(200_000)] for _ in range(2)]
    outputs = [[torch.zeros(200_000)] for _ in range(2)]
    plan = plan_of(world.names, "star", 200_000, 5000)
    plan = Plan(plan.kind, plan.participants, plan.shares, plan.chunk, 1.5, 0.0)  # several times as long as a stall
    results = await reduce_all(world, plan, inputs, outputs, op="sum", profile=replace(PROFILE, pace=True))
    assert all(isinstance(r, Stats) for r in results), results
    assert all(bool((out == 2).all()) for (out,) in outputs)


async def test_silence_is_noticed_on_the_connection_that_a_peer_sends_on(mesh: Meshes) -> None:
    world = await two_ways(mesh)
    a, b = world.names
    there, here = world.bulks[a]._pool.among(b)
    assert there.dialed
    assert not here.dialed

    class Waiting:
        def begun(self, peer: PeerId, again: bool) -> None: ...
        def waiting_on(self, peer: PeerId) -> bool:
            return True

    hold = Hold(Waiting(), b, b"t" * 16, there, asyncio.get_running_loop().time, lambda *_: None)  # type: ignore[arg-type]
    hold.begun(here, hold.call.checksum)
    for end in (here.transport, here.transport.other):
        end.frozen = True
    async with asyncio.timeout(20):
        await here._gone.wait()
    assert here.standing
    assert not there.standing
    assert there.closed, "it may be as dead, and nobody uses it"


@pytest.mark.parametrize("at", [15, 19])
async def test_a_header_that_the_way_has_changed_is_called_forged_and_not_what_the_neighbour_sent(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Regression: what its header said of a chunk was acted on before its seal was looked at."""
    begin, changed = Inbound._begin, list[Header]()

    def flips(reader: Inbound, header: Header, packed: memoryview, end: int) -> int:
        if header.kind in CHUNKS and header.second == 3 and not changed:
            packed[at] ^= 1
            header = read_header(packed)
            changed.append(header)
        return begin(reader, header, packed, end)

    monkeypatch.setattr(Inbound, "_begin", flips)
    world = mesh(2)
    plan = plan_of(world.names, "ring", 90_000, 5000)
    inputs = [contribution(n, [(plan.elements,)], torch.float32) for n in range(2)]
    results = await reduce_all(world, plan, inputs, [[torch.zeros(plan.elements)] for _ in range(2)])
    assert changed
    assert any("forged or torn" in str(each) for each in results), results
    assert not any("expected" in str(each) for each in results), results


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("where", ["_slot", "_make_partial", "_finish", "_land", "_outgoing"])
async def test_what_breaks_here_ends_its_collective_with_that_error_and_nothing_beside_it(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch, sealed: bool, where: str
) -> None:
    """Regression: it ended the connection with all that ran over it, and each end blamed the other."""
    works = getattr(Session, where)

    def breaks(session: Session, *given: Any) -> Any:
        if session.exchange.me == 1 and session.plan.elements == 90_000:
            raise MemoryError("none left")
        return works(session, *given)

    monkeypatch.setattr(Session, where, breaks)
    world = mesh(3, profile=replace(BulkProfile(), sealed=sealed))
    plans = [plan_of(world.names, "ring", elements, 5000) for elements in (90_000, 300_000)]
    inputs = [[contribution(n, [(plan.elements,)], torch.float32) for n in range(3)] for plan in plans]
    outputs = [[[torch.zeros(plan.elements)] for _ in range(3)] for plan in plans]
    broken, beside = await asyncio.gather(*map(reduce_all, [world, world], plans, inputs, outputs))
    assert all(isinstance(each, Stats) for each in beside), beside
    assert isinstance(broken[1], MemoryError)
    for other in (broken[0], broken[2]):
        assert isinstance(other, ParticipantLost)
        assert other.suspects == (world.names[1],)
        assert "gave up: MemoryError" in str(other)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("nth", [1, 4, 12])
async def test_memory_that_is_lacking_for_what_leaves_ends_its_collective_with_that_error(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch, sealed: bool, nth: int
) -> None:
    """Regression: in a call of the transport nobody heard of it, and the others waited for a chunk for an hour."""
    world = mesh(3, profile=replace(BulkProfile(), sealed=sealed, high_water=64 * 1024))
    plan = plan_of(world.names, "ring", 300_000, 5000)
    inputs = [contribution(n, [(plan.elements,)], torch.float32) for n in range(3)]
    outputs = [[torch.zeros(plan.elements)] for _ in range(3)]
    sender = await world.bulks[world.names[1]].connection(world.names[2], 1)
    lay_out, resume, resumed = sender._outbound._laid_out, sender.resume_writing, [False, 0]

    def refuse(header: bytes, size: int) -> tuple[bytearray, memoryview]:
        resumed[1] += resumed[0]
        if resumed == [True, nth]:
            raise MemoryError("none left")
        return lay_out(header, size)

    def resume_writing() -> None:
        resumed[0] = True
        resume()
        resumed[0] = False

    monkeypatch.setattr(sender._outbound, "_laid_out", refuse)
    monkeypatch.setattr(sender, "resume_writing", resume_writing)
    broken = await reduce_all(world, plan, inputs, outputs)
    assert isinstance(broken[1], MemoryError), broken
    assert all(isinstance(each, ParticipantLost) and each.suspects == (world.names[1],) for each in broken[::2])
    another = plan_of(world.names, "ring", 300_000, 6000)
    whole = await reduce_all(world, another, inputs, outputs)
    assert all(isinstance(each, Stats) for each in whole), whole
    assert not sender.closed


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize(("low", "high"), [(100, 200), (200, 100), (30_000, 40_000), (40_000, 30_000)])
async def test_sizes_that_differ_fail_their_collective_and_nothing_beside_it(
    mesh: Meshes, sealed: bool, low: int, high: int
) -> None:
    world = mesh(2, profile=replace(BulkProfile(), sealed=sealed))
    names, sizes = world.names, (low, high)
    await world.bulks[names[0]].connection(names[1], 1)
    beside = plan_of(names, "ring", 300_000, 10_000)
    inputs = [contribution(n, [(300_000,)], torch.float32) for n in range(2)]
    outputs = [[torch.zeros(300_000)] for _ in range(2)]
    other = asyncio.ensure_future(reduce_all(world, beside, inputs, outputs, op="sum"))
    while not all(bulk._users for bulk in world.bulks.values()):
        await asyncio.sleep(0.001)
    wrong = await asyncio.gather(
        *(
            all_reduce(
                plan_of(names, "ring", size, 50_000),
                n,
                [torch.ones(size)],
                [torch.zeros(size)],
                world.bulks[names[n]],
                RoundTag(b"of other sizes", 1, 0, b""),
                profile=PROFILE,
            )
            for n, size in enumerate(sizes)
        ),
        return_exceptions=True,
    )
    for error in wrong:
        assert isinstance(error, ParticipantLost), repr(error)
        assert re.search(rf"sent ({2 * low}|{2 * high}) bytes for .*, expected ({2 * low}|{2 * high})", str(error))
    assert all(isinstance(result, Stats) for result in await other), "the other one goes on"
    assert all(torch.equal(each[0], inputs[0][0] + inputs[1][0]) for each in outputs)
    assert len(world.links) == 1, "over the same connection"
    assert not any(bulk._users for bulk in world.bulks.values())


@pytest.mark.parametrize(("called", "stands"), [("", True), ("sum", False)], ids=["in a round", "without agreement"])
async def test_an_attempt_that_a_slow_line_was_given_up_for_does_not_take_the_next_one_with_it(
    mesh: Meshes, called: str, stands: bool
) -> None:
    """Regression: its last chunk took a second, so the connection was dropped under the attempt that followed it.

    Who calls without agreement has no other attempt, and waits for its error.
    """
    elements = int(1.5 * 2 / TURN) // 4  # each sends as many, 2 bytes a turn
    world = mesh(2, profile=BulkProfile(sealed=False, stall=10.0))
    plan = plan_of(world.names, "star", 2 * elements, elements)
    inputs = [[torch.full((2 * elements,), float(n + 1))] for n in range(2)]
    outputs = [[torch.zeros(2 * elements)] for _ in range(2)]

    def attempt(number: int) -> list[asyncio.Task[Stats]]:
        named = replace(tag(plan, number), call=called)
        both = enumerate(world.names)
        return [
            asyncio.ensure_future(
                all_reduce(plan, n, inputs[n], outputs[n], world.bulks[me], named, op="sum", profile=PROFILE)
            )
            for n, me in both
        ]

    connection = await world.bulks[world.names[0]].connection(world.names[1], 1)
    for _, _, end in world.links:
        end.step = end.other.step = 2
    first = attempt(0)
    while connection.pending < 4 * elements:
        await asyncio.sleep(0)
    for each in first:
        each.cancel()
    began = asyncio.get_running_loop().time()
    second = attempt(1)
    await asyncio.gather(*first, return_exceptions=True)
    took = asyncio.get_running_loop().time() - began
    assert connection.closed is not stands
    assert (took < 1.1) is not stands
    for _, _, end in world.links:
        end.step = end.other.step = 50_000
    if stands:
        await asyncio.gather(*second)
        assert all(bool((out == 3).all()) for (out,) in outputs)
    else:
        await asyncio.gather(*second, return_exceptions=True)


@pytest.mark.parametrize("arrives", [True, False], ids=["a slow line", "a dead one"])
async def test_a_slow_line_gets_on_while_its_kernel_takes_nothing(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """Regression: a kernel takes more only once it has much room, and at 10 Mbit/s took longer for that than a second.

    What arrives in the meantime tells a slow line from a dead one.
    """
    world = mesh(2, profile=BulkProfile(sealed=False, stall=10.0))
    connection = await world.bulks[world.names[0]].connection(world.names[1], 1)
    hold = Hold(None, world.names[1], bytes(16), connection, lambda: 0.0, lambda *_: None)  # type: ignore[arg-type]
    attached = Attached([hold], lambda _: None, lambda *_: None, 10.0)
    transport, left = connection.transport, itertools.count(10**6, -arrives)
    transport.frozen = True
    monkeypatch.setattr(kernel, "unacknowledged", lambda _: next(left))
    connection.send(Kind.ALIVE, body=bytes(1000))
    aborting = asyncio.ensure_future(attached.abort("for a test", ()))
    await asyncio.sleep(1.5)
    transport.frozen = False
    transport._wake()
    await aborting
    assert connection.closed is not arrives


@pytest.mark.parametrize("stall", [3.0, 10.0], ids=["local", "lan"])
async def test_who_waits_for_a_slow_line_begins_the_next_attempt_before_others_give_it_up(
    mesh: Meshes, stall: float
) -> None:
    """Regression: it waited for three seconds, which is as long as the others wait for it on one machine."""
    elements = int(2 * stall / TURN) // 4  # over the slow line at a byte a turn it takes twice the stall deadline
    world = mesh(3, profile=BulkProfile(sealed=False, stall=stall))
    plan = plan_of(world.names, "star", 3 * elements, elements)
    inputs = [[torch.full((3 * elements,), float(n + 1))] for n in range(3)]
    outputs = [[torch.zeros(3 * elements)] for _ in range(3)]
    patient = replace(PROFILE, start=stall)

    async def attempt(n: int, number: int, after: asyncio.Task[Stats] | None = None) -> Stats:
        if after is not None:
            await asyncio.wait([after])
        bulk, named = world.bulks[world.names[n]], tag(plan, number)
        return await all_reduce(plan, n, inputs[n], outputs[n], bulk, named, op="sum", profile=patient)

    for one, other in ((0, 1), (0, 2), (1, 2)):
        await world.bulks[world.names[one]].connection(world.names[other], 1)
    for a, b, end in world.links:
        end.step = end.other.step = 1 if {a, b} == {*world.names[:2]} else 50_000
    first = [asyncio.ensure_future(attempt(n, 0)) for n in range(3)]
    while not any(end.get_write_buffer_size() > 2 * elements for a, b, end in world.links if b != world.names[2]):
        await asyncio.sleep(0)
    for each in first:
        each.cancel()
    second = [asyncio.ensure_future(attempt(n, 1, first[n])) for n in range(3)]
    await asyncio.wait(first)
    for _, _, end in world.links:
        end.step = end.other.step = 50_000
    await asyncio.gather(*second)
    assert all(bool((out == 6).all()) for (out,) in outputs)
