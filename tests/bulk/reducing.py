"""All-reduces over real connections: their plans, what each participant brings, and all of them at once."""

from __future__ import annotations

import asyncio
from typing import Any

import torch

from ictp2p.collectives.channel import RoundTag
from ictp2p.collectives.plan import Plan, Share
from ictp2p.collectives.planning.schedules import parameter_server, ring, star
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import Stats, all_reduce

KINDS = {
    "star": star.trees,
    "ring": lambda size: ring.trees(range(size)),
    "server": lambda size: parameter_server.trees(size)[-1:],
}
PROFILE = ExecuteProfile(connect=20.0, start=20.0, total=60.0)


def plan_of(names: list[str], kind: str, elements: int, chunk: int) -> Plan:
    trees = KINDS[kind](len(names))
    cuts = [elements * n // len(trees) for n in range(len(trees) + 1)]
    shares = tuple(Share(a, b, *tree) for tree, a, b in zip(trees, cuts, cuts[1:], strict=False))
    return Plan(kind, tuple(names), shares, chunk, 0.0, 0.0)


def contribution(node: int, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    return [(torch.arange(torch.Size(s).numel()) % 5 + node + n).to(dtype).reshape(s) for n, s in enumerate(shapes)]


def tag(plan: Plan, attempt: int = 0) -> RoundTag:
    return RoundTag(b"lineage!", 7, attempt, plan.digest())


async def reduce_all(
    world: Any, plan: Plan, inputs: list[list[torch.Tensor]], outputs: list[list[torch.Tensor]], **options: Any
) -> list[Stats | BaseException]:
    options = {"profile": PROFILE, **options}
    return await asyncio.gather(
        *(
            all_reduce(plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan), **options)
            for n, me in enumerate(world.names)
        ),
        return_exceptions=True,
    )
