"""Who gives a collective up: all others hear of it, also who comes later, and nothing of it is touched any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import torch

from ictp2p.bulk import BulkProfile
from ictp2p.bulk.frames import Kind
from ictp2p.collectives.channel import CollectiveTimeout, ParticipantLost
from ictp2p.collectives.running.execute import Stats, all_reduce
from ictp2p.types import PeerId
from tests.bulk.reducing import KINDS, PROFILE, plan_of, tag
from tests.bulk.test_collective import Meshes
from tests.garbage import LARGE, uncollected


async def test_giving_up_ends_it_for_everyone_at_once(mesh: Meshes) -> None:
    world = mesh(3)
    inputs = [[torch.ones(200_000)] for _ in range(3)]
    outputs = [[torch.zeros(200_000)] for _ in range(3)]
    plan = plan_of(world.names, "ring", 200_000, 100)
    tasks = [
        asyncio.ensure_future(all_reduce(plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan), profile=PROFILE))
        for n, me in enumerate(world.names)
    ]
    while not outputs[0][0].any():
        await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert asyncio.get_running_loop().time() - began < PROFILE.total / 4, "not for a deadline"
    assert isinstance(results[1], asyncio.CancelledError)
    assert all(isinstance(result, ParticipantLost) for result in (results[0], results[2])), results


async def test_who_gives_up_before_it_has_reached_all_tells_those_who_have_begun(mesh: Meshes) -> None:
    """Regression: they waited for it as long as for one who is late, and then suspected it, and not whom it did."""
    world = mesh(3)
    a, b, c = world.names
    plan = plan_of([a, b, c], "star", 3000, 100)
    for each in (b, c):
        await world.bulks[a].connection(each, 1)
    world.block((1, 2), (2, 1))
    world.deaf.update({b, c})
    inputs, outputs = [torch.ones(3000)], [torch.zeros(3000)]
    begun, reaching = (
        asyncio.ensure_future(all_reduce(plan, n, inputs, outputs, world.bulks[me], tag(plan), profile=PROFILE))
        for n, me in ((0, a), (1, b))
    )
    await asyncio.sleep(0.01)
    assert world.bulks[a].collectives()
    assert not world.bulks[b].collectives()
    began = asyncio.get_running_loop().time()
    reaching.cancel(ParticipantLost("another part has lost it", [c]))
    with pytest.raises(ParticipantLost, match="gave up: another part has lost it") as lost:
        await begun
    assert lost.value.suspects == (c,)
    assert asyncio.get_running_loop().time() - began < PROFILE.start / 4, "not for a deadline"


@pytest.mark.parametrize("again", [False, True], ids=["late", "late, and once more"])
async def test_who_comes_after_its_connections_were_lost_hears_that_the_others_gave_up(
    mesh: Meshes, again: bool
) -> None:
    """Regression: that was said on the connections of before. It waited for the others until its time was over."""
    world = mesh(3)
    plan = plan_of(world.names, "star", 3000, 100)
    inputs, outputs = [torch.ones(3000)], [torch.zeros(3000)]
    bulks = [world.bulks[name] for name in world.names]
    await bulks[2].connection(world.names[0], 1)
    await bulks[2].connection(world.names[1], 1)

    async def act(n: int) -> Stats:
        return await all_reduce(plan, n, inputs, outputs, bulks[n], tag(plan), profile=PROFILE)

    others = [asyncio.ensure_future(act(n)) for n in (0, 1)]
    while len(bulks[0].collectives()) < 2:
        await asyncio.sleep(0)
    for end in world.ends(2):  # as of who was silent for too long
        end.reset()
    results = await asyncio.gather(*others, return_exceptions=True)
    assert all(isinstance(result, ParticipantLost) for result in results), results
    for _ in range(1 + again):
        began = asyncio.get_running_loop().time()
        with pytest.raises(ParticipantLost):
            await act(2)
        assert asyncio.get_running_loop().time() - began < PROFILE.start / 4, "not for a deadline"


async def test_who_comes_later_goes_by_what_was_said_to_it_though_nobody_else_remembers(mesh: Meshes) -> None:
    world = mesh(2)
    plan = plan_of(world.names, "star", 3000, 100)
    inputs, outputs = [torch.ones(3000)], [torch.zeros(3000)]
    first, late = (world.bulks[name] for name in world.names)

    async def act(n: int) -> Stats:
        return await all_reduce(plan, n, inputs, outputs, (first, late)[n], tag(plan), profile=PROFILE)

    given_up = asyncio.ensure_future(act(0))
    await late.first_begun({world.names[0]: tag(plan).wire()})
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    (desk,) = late._desks.values()
    while desk.aborted(tag(plan).wire()) is None:
        await asyncio.sleep(0)
    first.attaching._given_up.clear()  # it remembers so many
    began = asyncio.get_running_loop().time()
    with pytest.raises(ParticipantLost, match="gave up"):
        await act(1)
    assert asyncio.get_running_loop().time() - began < PROFILE.start / 4, "not for a deadline"


async def test_what_it_takes_to_reach_the_others_is_part_of_the_time(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a call had its time for that, and then once more."""
    world = mesh(2)
    dial = world.dial

    async def slowly(me: PeerId, peer: PeerId, timeout: float) -> Any:
        await asyncio.sleep(0.3)
        return await dial(me, peer, timeout)

    monkeypatch.setattr(world, "dial", slowly)
    plan, began = plan_of(world.names, "star", 3000, 100), asyncio.get_running_loop().time()
    profile = replace(PROFILE, connect=0.5, start=0.5, total=0.5)
    bulk = world.bulks[world.names[0]]
    with pytest.raises(CollectiveTimeout, match=r"did not begin within 0\.5 s"):
        await all_reduce(plan, 0, [torch.ones(3000)], [torch.zeros(3000)], bulk, tag(plan), profile=profile)
    assert 0.49 < asyncio.get_running_loop().time() - began < 0.6


@pytest.mark.parametrize("end", ["kill", "cancel", "late", "gone"])
async def test_a_failed_attempt_keeps_no_tensor_once_its_error_is_dropped(mesh: Meshes, end: str) -> None:
    """Its error knew its frames, and these the future that knows the error: a gigabyte stayed for hours, perhaps."""
    world = mesh(3)
    plan, quick = plan_of(world.names, "star", LARGE, 4096), replace(PROFILE, connect=0.5, start=0.5)

    async def fail() -> list[bool]:
        if end == "gone":
            world.kill(2)
        tasks = [
            asyncio.ensure_future(
                all_reduce(
                    plan, n, [torch.ones(LARGE)], [torch.zeros(LARGE)], world.bulks[me], tag(plan), profile=quick
                )
            )
            for n, me in enumerate(world.names[: 2 if end in ("late", "gone") else 3])
        ]
        await asyncio.sleep(0.001)
        if end == "kill":
            world.kill(2)
        elif end == "cancel":
            tasks[1].cancel()
        return [isinstance(each, BaseException) for each in await asyncio.gather(*tasks, return_exceptions=True)]

    with uncollected() as left:
        assert all(await fail())
        await asyncio.sleep(1.0)
    assert left == []


@pytest.mark.parametrize("sealed", [True, False])
async def test_after_an_abort_no_late_body_reaches_the_callers_tensor(mesh: Meshes, sealed: bool) -> None:
    world = mesh(2, profile=BulkProfile(stall=2.0, sealed=sealed, high_water=16384))
    inputs = [[torch.full((50_000,), float(n + 1))] for n in range(2)]
    outputs = [[torch.zeros(50_000)] for _ in range(2)]
    plan = plan_of(world.names, "star", 50_000, 20_000)
    a, b = world.names
    await world.bulks[a].connection(b, 1)
    connection = await world.bulks[b].connection(a, 1)
    world.links[0][2].step = 300  # towards b only
    tasks = [
        asyncio.ensure_future(
            all_reduce(plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan), op="sum", profile=PROFILE)
        )
        for n, me in enumerate(world.names)
    ]
    while not (connection._header and connection._header.kind is Kind.RESULT and connection._filled > 5000):
        await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    received = connection.received
    outputs[1][0].fill_(-7)
    await asyncio.gather(tasks[0], return_exceptions=True)
    while connection.received < received + 10_000:
        await asyncio.sleep(0)
    assert bool((outputs[1][0] == -7).all())


@pytest.mark.parametrize("stopped", [True, False])
async def test_after_an_abort_no_transport_holds_the_callers_tensor(mesh: Meshes, stopped: bool) -> None:
    """In clear it is sent from where it lies: what the caller writes there next would leave as its contribution."""
    world = mesh(2, profile=BulkProfile(stall=20.0, sealed=False))
    inputs, outputs = ([[torch.full((50_000,), x + n)] for n in range(2)] for x in (1.0, -8.0))
    plan = plan_of(world.names, "star", 50_000, 20_000)
    connection = await world.bulks[world.names[0]].connection(world.names[1], 1)
    connection.transport.step = 300
    tasks = [
        asyncio.ensure_future(
            all_reduce(plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan), op="sum", profile=PROFILE)
        )
        for n, me in enumerate(world.names)
    ]
    while not 50_000 < connection.pending < 79_000:  # in the middle of a chunk
        await asyncio.sleep(0)
    connection.transport.frozen = stopped
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert connection.transport.get_write_buffer_size() == 0
    assert connection.closed == stopped, "what is not taken in time is cut off"
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_the_caller_may_change_everything_as_soon_as_the_call_ends(mesh: Meshes, sealed: bool, kind: str) -> None:
    world = mesh(3, profile=BulkProfile(stall=2.0, sealed=sealed))
    inputs = [[torch.full((20_000,), float(n + 1))] for n in range(3)]
    outputs = [[torch.zeros(20_000)] for _ in range(3)]
    results: list[torch.Tensor] = []
    plan = plan_of(world.names, kind, 20_000, 1500)
    for me, peer in ((0, 1), (1, 2), (0, 2)):
        await world.bulks[world.names[me]].connection(world.names[peer], 1)
    for n, (_, _, end) in enumerate(world.links):
        end.step, end.other.step = 400 + 300 * n, 3000 - 800 * n

    async def reduce_and_spoil(n: int) -> None:
        me = world.bulks[world.names[n]]
        await all_reduce(plan, n, inputs[n], outputs[n], me, tag(plan), op="sum", profile=PROFILE)
        for peer in world.names:
            for connection in me._pool.among(peer):
                assert connection.transport.get_write_buffer_size() < 1000, "others wait for what is still here"
        results.append(outputs[n][0].clone())
        inputs[n][0].fill_(1e6)
        outputs[n][0].fill_(-1e6)

    await asyncio.gather(*(reduce_and_spoil(n) for n in range(3)))
    assert all(bool((result == 6).all()) for result in results)
