"""Reductions whose result stays at its root, and sums made where the contribution lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import reduce as fold
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.channel import ParticipantLost
from ictp2p.collectives.plan import REDUCE, Plan, Share
from ictp2p.collectives.running import execute
from ictp2p.collectives.running.execute import Stats
from ictp2p.collectives.running.windows import STAGING_BYTES
from ictp2p.errors import ConfigError
from tests.bulk.conftest import Mesh, run_turns
from tests.bulk.reducing import KINDS, PROFILE, contribution, plan_of, reduce_all, tag

Meshes = Callable[..., Any]
OPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


def scattered(names: list[str], kind: str, elements: int, chunk: int) -> Plan:
    plan = plan_of(names, kind, elements, chunk)
    shares = tuple(Share(s.start, s.stop, s.root, s.reduce_parents, s.reduce_parents) for s in plan.shares)
    return replace_kind(plan, shares)


def replace_kind(plan: Plan, shares: tuple[Share, ...]) -> Plan:
    return Plan(REDUCE, plan.participants, shares, plan.chunk, plan.seconds, plan.bound)


@given(
    st.integers(1, 4),
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 700),
    st.sampled_from([torch.float32, torch.int64, torch.bfloat16, torch.uint8]),
    st.sampled_from(["sum", "min", "max", "product"]),
)
@settings(max_examples=40, deadline=None)
def test_each_root_gets_its_share_and_nobody_anything_else(
    size: int, kind: str, elements: int, dtype: torch.dtype, op: str
) -> None:
    async def run() -> None:
        world = Mesh(size)
        plan = scattered(world.names, kind, elements, 33)
        inputs = [contribution(n, [(elements,)], dtype) for n in range(size)]
        kept = [each[0].clone() for each in inputs]
        roots = [[s for s in plan.shares if s.root == n] for n in range(size)]
        outputs = [[torch.zeros(s.stop - s.start, dtype=dtype) for s in mine] for mine in roots]
        results = await asyncio.gather(
            *(
                execute.reduce(plan, n, inputs[n], outputs[n], bulk, tag(plan), op=op, profile=PROFILE)
                for n, bulk in enumerate(world.bulks.values())
            )
        )
        whole = fold(OPS[op], kept)
        for n in range(size):
            assert torch.equal(inputs[n][0], kept[n]), "an input was written"
            for share, out in zip(roots[n], outputs[n], strict=True):
                assert torch.equal(out, whole[share.start : share.stop])
        sent = sum(r.bytes_sent for r in results)
        assert sent <= (size - 1) * (elements * (4 if dtype is torch.bfloat16 else dtype.itemsize) + 2 * elements)
        await world.close()

    run_turns(run())


async def test_a_reduction_keeps_the_window_though_no_result_comes_back(mesh: Meshes) -> None:
    """A root that waits for a slow child must not have to hold all that a fast one sends."""
    world = mesh(3)
    elements = 4 * STAGING_BYTES // 4
    plan = replace_kind(plan_of(world.names, "server", elements, 1 << 18), ())
    parents = (2, 2, -1)
    plan = replace_kind(plan, (Share(0, elements, 2, parents, parents),))
    data = torch.ones(elements)
    out = torch.zeros(elements)
    for end in world.ends(0):
        end.step = end.other.step = 500_000
    for n in (1, 2):
        for end in world.ends(n):
            end.step = end.other.step = 10_000_000
    jobs = [
        execute.reduce(plan, n, [data], [out] if n == 2 else [], bulk, tag(plan), profile=PROFILE)
        for n, bulk in enumerate(world.bulks.values())
    ]
    results = await asyncio.gather(*jobs)
    assert bool((out == 3).all())
    assert results[2].staging_peak <= STAGING_BYTES + 2 * plan.chunk * 4


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("op", sorted(OPS))
async def test_in_place_is_exact_whatever_our_place_among_the_terms(
    mesh: Meshes, kind: str, size: int, op: str
) -> None:
    world = mesh(size)
    tensors = [contribution(n, [(301,), (44,)], torch.int32) for n in range(size)]
    expected = [fold(OPS[op], [each[i].clone() for each in tensors]) for i in range(2)]
    results = await reduce_all(
        world, plan_of(world.names, kind, 345, 16), tensors, tensors, op=op, in_place=True, profile=PROFILE
    )
    assert all(isinstance(r, Stats) for r in results), results
    assert all(torch.equal(t, e) for each in tensors for t, e in zip(each, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
async def test_in_place_averages_weigh_the_contribution_not_the_sum(mesh: Meshes, dtype: torch.dtype) -> None:
    world = mesh(3)
    tensors = [[torch.full((100,), float(value), dtype=dtype)] for value in (6, 12, 24)]
    plan = plan_of(world.names, "star", 100, 16)
    await reduce_all(world, plan, tensors, tensors, weights=[3, 2, 1], in_place=True)
    assert all(torch.equal(t, torch.full((100,), 11.0, dtype=dtype)) for (t,) in tensors)


async def test_a_dead_contributor_ends_a_reduction(mesh: Meshes) -> None:
    world = mesh(3)
    plan = scattered(world.names, "star", 3000, 100)
    quick = replace(PROFILE, connect=0.5, start=0.5)
    jobs = [
        asyncio.ensure_future(
            execute.reduce(plan, n, [torch.ones(3000)], [torch.zeros(1000)], bulk, tag(plan), profile=quick)
        )
        for n, bulk in enumerate(world.bulks.values())
        if n != 2
    ]
    world.kill(2)
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert all(isinstance(r, ParticipantLost) for r in results), results


async def test_outputs_that_do_not_fit_are_named(mesh: Meshes) -> None:
    world = mesh(1)
    (bulk,) = world.bulks.values()
    plan = scattered(world.names, "star", 10, 4)
    for outputs, message in (
        ([torch.zeros(4)], r"outputs do not fit elements \[4, 10\)"),
        ([torch.zeros(10), torch.zeros(1)], "1 outputs more"),
        ([torch.zeros(10, dtype=torch.int32)], "outputs are torch.int32"),
    ):
        with pytest.raises(ConfigError, match=message):
            await execute.reduce(plan, 0, [torch.zeros(10)], outputs, bulk, tag(plan))
    with pytest.raises(ConfigError, match="gives its results to everybody"):
        await execute.reduce(
            plan_of(world.names, "star", 10, 4), 0, [torch.zeros(10)], [torch.zeros(10)], bulk, tag(plan)
        )
