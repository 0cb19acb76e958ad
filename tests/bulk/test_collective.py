"""Collectives over real connections: exact, the same bits everywhere, and within their bounds of memory and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.bulk import BulkProfile
from ictp2p.bulk.collective import Attached, Hold
from ictp2p.bulk.frames import Kind
from ictp2p.collectives.plan import Plan, Share
from ictp2p.collectives.planning.schedules import ring, star
from ictp2p.collectives.planning.schedules.trees import downward
from ictp2p.collectives.running.execute import Stats, all_reduce, broadcast
from tests.bulk.conftest import Mesh, run_turns
from tests.bulk.reducing import KINDS, PROFILE, contribution, plan_of, reduce_all, tag

Meshes = Callable[..., Any]
SHAPES: list[list[tuple[int, ...]]] = [[(1000,)], [(7,), (), (3, 5), (0,), (401,)], [()], [(0,)], [(2,)], [(33, 61)]]


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
async def test_sums_are_exact_and_the_same_bits_everywhere(
    mesh: Meshes, kind: str, size: int, shapes: list[tuple[int, ...]]
) -> None:
    world = mesh(size)
    inputs = [contribution(n, shapes, torch.float32) for n in range(size)]
    kept = [[t.clone() for t in each] for each in inputs]
    outputs = [[torch.full_like(t, -1) for t in each] for each in inputs]
    elements = sum(t.numel() for t in inputs[0])
    done: list[tuple[int, int]] = []
    results = await reduce_all(
        world,
        plan_of(world.names, kind, elements, 64),
        inputs,
        outputs,
        op="sum",
        progress=lambda a, b: done.append((a, b)),
    )
    assert all(isinstance(r, Stats) for r in results), results
    for n in range(size):
        for i, out in enumerate(outputs[n]):
            assert torch.equal(out, sum(each[i] for each in kept))
            assert torch.equal(inputs[n][i], kept[n][i]), "an input was written"
    assert sorted(x for a, b in done for x in range(a, b)) == sorted(size * list(range(elements)))
    assert all(not bulk._users for bulk in world.bulks.values())


async def test_to_wait_for_the_kernel_has_an_end(mesh: Meshes) -> None:
    world = mesh(2)
    connection = await world.bulks[world.names[0]].connection(world.names[1], 1)
    hold = Hold(None, world.names[1], bytes(16), connection, lambda: 0.0, lambda *_: None)  # type: ignore[arg-type]
    attached = Attached([hold], lambda _: None, lambda *_: None, 5.0)
    await attached.flushed(0.0)
    connection.transport.frozen = True  # type: ignore[attr-defined]
    connection.send(Kind.ALIVE, body=bytes(1000))
    with pytest.raises(TimeoutError):
        await attached.flushed(0.01)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8])
async def test_every_type_sealed_and_in_clear(mesh: Meshes, kind: str, sealed: bool, dtype: torch.dtype) -> None:
    world = mesh(3, profile=replace(BulkProfile(), sealed=sealed))
    inputs = [contribution(n, [(501,), (9,)], dtype) for n in range(3)]
    outputs = [[torch.zeros_like(t) for t in each] for each in inputs]
    results = await reduce_all(world, plan_of(world.names, kind, 510, 50), inputs, outputs, op="sum")
    assert all(isinstance(r, Stats) for r in results), results
    for n in range(3):
        for i, out in enumerate(outputs[n]):
            assert torch.equal(out, inputs[0][i] + inputs[1][i] + inputs[2][i])


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_averages_weigh_every_contribution_once(mesh: Meshes, kind: str) -> None:
    world = mesh(3)
    inputs = [[torch.full((100,), float(value))] for value in (6, 12, 24)]
    outputs = [[torch.zeros(100)] for _ in range(3)]
    results = await reduce_all(world, plan_of(world.names, kind, 100, 16), inputs, outputs, weights=[3, 2, 1])
    assert all(isinstance(r, Stats) for r in results), results
    assert all(torch.equal(out, torch.full((100,), (18 + 24 + 24) / 6)) for (out,) in outputs)


@given(st.integers(0, 2**32), st.sampled_from(sorted(KINDS)), st.integers(2, 4), st.integers(0, 300))
@settings(max_examples=25, deadline=None)
def test_rounded_sums_have_the_same_bits_everywhere(seed: int, kind: str, size: int, elements: int) -> None:
    async def run() -> None:
        world = Mesh(size)
        random = torch.Generator().manual_seed(seed)
        inputs = [[torch.randn(elements, generator=random)] for _ in range(size)]
        outputs = [[torch.zeros(elements)] for _ in range(size)]
        results = await reduce_all(
            world, plan_of(world.names, kind, elements, 17), inputs, outputs, weights=[*range(1, size + 1)]
        )
        assert all(isinstance(r, Stats) for r in results), results
        assert all(outputs[0][0].numpy().tobytes() == out.numpy().tobytes() for (out,) in outputs)
        await world.close()

    run_turns(run())


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_staging_stays_within_its_bound(mesh: Meshes, kind: str) -> None:
    world = mesh(4)
    inputs = [[torch.ones(400_000)] for _ in range(4)]
    outputs = [[torch.zeros(400_000)] for _ in range(4)]
    results = await reduce_all(world, plan_of(world.names, kind, 400_000, 1000), inputs, outputs, op="sum")
    for stats in results:
        assert isinstance(stats, Stats), stats
        assert stats.staging_peak <= 32 * 1024 * 1024
    assert all(bool((out == 4).all()) for (out,) in outputs)


@pytest.mark.parametrize("kind", ["star", "ring"])
async def test_a_broadcast_copies_from_each_root(mesh: Meshes, kind: str) -> None:
    world = mesh(4)
    trees = {"star": star.trees(4), "ring": ring.trees(range(4))}[kind]
    plan = Plan("broadcast", tuple(world.names), (Share(0, 1000, *downward(trees[2])),), 64, 0.0, 0.0)
    tensors = [[torch.full((600,), float(n)), torch.full((20, 20), float(n))] for n in range(4)]
    await asyncio.gather(
        *(
            broadcast(plan, n, tensors[n], world.bulks[me], tag(plan), profile=PROFILE)
            for n, me in enumerate(world.names)
        )
    )
    assert all(bool((t == 2).all()) for each in tensors for t in each)


async def test_a_collective_is_measured_at_both_ends(mesh: Meshes) -> None:
    world = mesh(2)
    inputs = [[torch.ones(200_000)] for _ in range(2)]
    outputs = [[torch.zeros(200_000)] for _ in range(2)]
    await reduce_all(world, plan_of(world.names, "star", 200_000, 5000), inputs, outputs, op="sum")
    for _ in range(10):
        await asyncio.sleep(0)
    a, b = world.names
    kinds = {(me, peer, told.direction) for me, peer, told in world.samples}
    assert kinds == {(a, b, "in"), (a, b, "out"), (b, a, "in"), (b, a, "out")}
    assert all(500_000 < size < 900_000 for size in [told.size for _, _, told in world.samples])
    assert not any(told.probe for _, _, told in world.samples)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("kind", ["ring", "star"])
async def test_results_that_span_tensors_land_in_each(mesh: Meshes, kind: str, sealed: bool) -> None:
    world = mesh(3, profile=BulkProfile(sealed=sealed))
    shapes: list[tuple[int, ...]] = [(20_001,), (3, 9000), (), (25_000,), (10,)]
    inputs = [contribution(n, shapes, torch.float32) for n in range(3)]
    outputs = [[torch.full_like(t, -1) for t in each] for each in inputs]
    plan = plan_of(world.names, kind, sum(t.numel() for t in inputs[0]), 17_000)
    results = await reduce_all(world, plan, inputs, outputs, op="sum")
    for result in results:
        assert isinstance(result, Stats), result
        assert result.bytes_received == 4 * 4 * plan.elements // 3
    for out in outputs:
        for i, tensor in enumerate(out):
            assert torch.equal(tensor, sum(each[i] for each in inputs))


async def test_two_collectives_run_side_by_side(mesh: Meshes) -> None:
    world = mesh(2)
    inputs = [[torch.full((5000,), float(n + 1))] for n in range(2)]
    outputs = [[[torch.zeros(5000)] for _ in range(2)] for _ in range(2)]
    plan = plan_of(world.names, "star", 5000, 100)
    await asyncio.gather(
        *(
            all_reduce(plan, n, inputs[n], outputs[k][n], world.bulks[me], tag(plan, k), op="sum", profile=PROFILE)
            for n, me in enumerate(world.names)
            for k in range(2)
        )
    )
    assert all(bool((out == 3).all()) for each in outputs for (out,) in each)


async def test_paced_edges_take_the_planned_time(mesh: Meshes) -> None:
    world = mesh(2)
    inputs = [[torch.ones(200_000)] for _ in range(2)]
    outputs = [[torch.zeros(200_000)] for _ in range(2)]
    plan = plan_of(world.names, "star", 200_000, 5000)
    plan = Plan(plan.kind, plan.participants, plan.shares, plan.chunk, 0.5, 0.0)
    results = await reduce_all(world, plan, inputs, outputs, op="sum", profile=replace(PROFILE, pace=True))
    assert all(isinstance(stats, Stats) and stats.seconds > 0.38 for stats in results), results
