"""Peers joined by several connections, and what tests do with those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import torch

from ictp2p.bulk.collective import Hold
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.hub import Bulk
from ictp2p.bulk.stripes import COUNT
from ictp2p.collectives.plan import BROADCAST, Plan, Share
from ictp2p.collectives.running.execute import Stats, broadcast
from ictp2p.types import PeerId
from tests.bulk.conftest import Mesh
from tests.bulk.reducing import PROFILE, contribution, plan_of, reduce_all, tag

Meshes = Callable[..., Mesh]
SIZE = 8_000_000


def beside(bulk: Bulk, peer: PeerId) -> tuple[BulkConnection, ...]:
    first = bulk._pool.warm(peer)
    assert first is not None
    return bulk.probing.stripes.beside(first)


async def striped(world: Mesh) -> None:
    for a in world.names:
        for b in world.names:
            if a != b:
                await world.bulks[a].probe(b, SIZE, timeout=5)
                assert len(beside(world.bulks[a], b)) == COUNT - 1


async def written(world: Mesh, elements: int, connections: Sequence[BulkConnection]) -> list[int]:
    """The bytes that each of some connections takes while two reduce so many elements."""
    before = [each.written for each in connections]
    plan = plan_of(list(world.names), "star", elements, 10_000)
    inputs = [contribution(n, [(elements,)], torch.float32) for n in range(2)]
    outcomes = await reduce_all(world, plan, inputs, [[torch.zeros(elements)] for _ in range(2)])
    assert not any(isinstance(each, BaseException) for each in outcomes)
    return [each.written - was for each, was in zip(connections, before, strict=True)]


def copying(world: Mesh, source: int) -> tuple[list[asyncio.Future[Stats]], list[torch.Tensor]]:
    """Begin to copy a tensor from one of two to the other."""
    tensors = [torch.full((500_000,), float(n)) for n in range(2)]
    parents = (-1, 0) if source == 0 else (1, -1)
    share = Share(0, 500_000, source, (-1, -1), parents)
    plan = Plan(BROADCAST, tuple(world.names), (share,), 10_000, 0.0, 0.0)
    copies = [
        asyncio.ensure_future(broadcast(plan, n, [tensors[n]], world.bulks[me], tag(plan), profile=PROFILE))
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


async def all_sent(world: Mesh) -> tuple[BulkConnection, list[asyncio.Future[Stats]], list[torch.Tensor]]:
    """Copy from one of two to the other until all has been sent, but what goes over stripes has not come.

    Gives the receiver's first connection, the copies that are under way, and their tensors.
    """
    await striped(world)
    a, b = world.names
    theirs = world.bulks[b]._pool.warm(a)
    assert theirs is not None
    freeze(world, but=theirs, frozen=True)
    copies, tensors = copying(world, 0)
    hold = await holding(world.bulks[a])
    while hold._receiver.owing_to(b) or hold.connection.pending:
        await asyncio.sleep(0)
    return theirs, copies, tensors
