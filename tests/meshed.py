"""Whole peers on real sockets, several in one event loop, for tests of what they do together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.config import Config, Timeouts
from ictp2p.runtime.reduction import Reduction
from ictp2p.sync.values import Spec

TOKEN = "a token for tests only"
ELEMENTS = 50_021


def config(cluster: str, *join: AsyncPeer, **values: object) -> Config:
    waits = Timeouts(connect=2.0, stall=2.0, form=8.0, complete=20.0)
    seeds = tuple(str(peer.address) for peer in join)
    given = {"cluster": cluster, "token": TOKEN, "join": seeds, "global_timeouts": waits, **values}
    return Config.local(**given)


@contextlib.asynccontextmanager
async def mesh(*clusters: str) -> AsyncIterator[list[AsyncPeer]]:
    """One peer per name, all of them knowing of each other; closed without a goodbye."""
    peers: list[AsyncPeer] = []
    try:
        for name in clusters:
            peer = AsyncPeer(config(name, *peers[:1]))
            peers.append(peer)
            await peer.start()
        await until(lambda: all(knows(peer, set(clusters)) for peer in peers))
        yield peers
    finally:
        for peer in peers:
            await peer.close()


def knows(peer: AsyncPeer, clusters: set[str]) -> bool:
    return {*peer.core.m.mesh.alive(), peer.cluster} >= clusters


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.01)


def training(*peers: AsyncPeer) -> None:
    for peer in peers:
        peer.set_training(True)


def reduction(value: float, elements: int = ELEMENTS, name: str = "test") -> Reduction:
    spec = Spec("reduce", name, "float32", elements, "avg", "none")
    return Reduction(spec, [torch.full((elements,), value)], [torch.empty(elements)])


async def all_training(peers: list[AsyncPeer]) -> None:
    training(*peers)
    count = len({p.cluster for p in peers})
    await until(lambda: all(sum(c["training"] for c in p.status()["clusters"]) == count for p in peers))
