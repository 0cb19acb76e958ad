"""The ceiling: all tensor bytes that a peer sends, over whatever connections and for whatever, keep to one rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.bulk.limit import Ceiling
from ictp2p.collectives.channel import RoundTag
from ictp2p.collectives.plan import BROADCAST, NO_PARENT, Plan, Share
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import broadcast
from ictp2p.types import PeerId
from tests.bulk.conftest import PROFILE, Mesh, run_turns

Meshes = Callable[..., Any]
RATE = 4e6
SLOWLY = replace(PROFILE, ceiling=RATE)
CHUNK = 16 * 1024
BURST = 0.05
"""Seconds: the bucket's, and a chunk of debt."""


async def copy(world: Mesh, target: int, number: int, size: int, seconds: float = 0.0) -> None:
    """Have the first copy so many bytes to another one, paced if it is to take so many seconds."""
    names = (world.names[0], world.names[target])
    share = Share(0, size, 0, (NO_PARENT,) * 2, (NO_PARENT, 0))
    plan, tag = Plan(BROADCAST, names, (share,), CHUNK, seconds, 0.0), RoundTag(b"copy", number, target, b"")
    data = [torch.ones(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)]
    profile = ExecuteProfile(pace=seconds > 0)
    await asyncio.gather(
        *(broadcast(plan, n, [data[n]], world.bulks[name], tag, profile=profile) for n, name in enumerate(names))
    )
    assert data[1].all()


@given(
    first=st.integers(100_000, 400_000),
    others=st.lists(st.tuples(st.integers(1, 2), st.integers(0, 600_000), st.floats(0, 0.1)), max_size=4),
)
@example(first=400_000, others=[(2, 400_000, 0.0)])  # connections to two peers
@example(first=400_000, others=[(1, 1000, 0.01)])  # one ends on the connection of another
@settings(max_examples=25, deadline=None)
def test_whatever_begins_and_ends_beside_a_collective_the_ceiling_holds(
    first: int, others: list[tuple[int, int, float]]
) -> None:
    async def story() -> None:
        world = Mesh(3, profile=SLOWLY)
        clock = asyncio.get_running_loop().time
        began = clock()

        async def later(number: int, target: int, size: int, seconds: float) -> None:
            await asyncio.sleep(seconds)
            await copy(world, target, number, size)

        await asyncio.gather(copy(world, 1, 0, first), *(later(n, *other) for n, other in enumerate(others, 1)))
        took = clock() - began
        total = first + sum(size for _, size, _ in others)
        idle = sum(seconds for _, _, seconds in others)
        await world.close()
        assert total / RATE - BURST < took < total / RATE + BURST + idle

    run_turns(story())


async def test_a_paced_collective_keeps_its_rate_when_another_one_ends(mesh: Meshes) -> None:
    world = mesh(2)
    clock = asyncio.get_running_loop().time
    began = clock()
    await asyncio.gather(copy(world, 1, 0, 400_000, 1.0), copy(world, 1, 1, 20_000, 0.1))
    assert clock() - began > 0.8


async def test_replies_keep_to_the_ceiling_too(mesh: Meshes) -> None:
    world = mesh(2, profile=SLOWLY)
    a, b = world.names

    async def chunks(peer: PeerId, payload: bytes) -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(CHUNK)

    world.bulks[b].serve("blob", chunks)
    clock = asyncio.get_running_loop().time
    began, into = clock(), bytearray(20 * CHUNK)
    assert await world.bulks[a].request(b, "blob", b"", into, timeout=5) == len(into)
    assert clock() - began > len(into) / RATE - BURST


class Sender:
    """Sends while it has something, and is admitted."""

    def __init__(self, ceiling: Ceiling, left: int, sent: list[Sender]) -> None:
        self.ceiling, self.left, self.sent = ceiling, left, sent

    def pump(self) -> None:
        while self.left and self.ceiling.admits(self):
            self.left -= 1
            self.sent.append(self)
            self.ceiling.spend(10_000)


async def test_who_sends_under_the_ceiling_takes_turns() -> None:
    ceiling, sent = Ceiling(1e6, asyncio.get_running_loop().time), list[Sender]()
    senders = [Sender(ceiling, 5, sent) for _ in range(3)]
    gone = Sender(ceiling, 5, sent)
    for sender in (*senders, gone):
        sender.pump()
    ceiling.forget(gone)
    while any(sender.left for sender in senders):
        await asyncio.sleep(0.01)
    assert gone not in sent
    assert all(set(sent[n : n + 3]) == set(senders) for n in range(1, 9)), "each once in any three, while all have any"


async def test_nobody_goes_before_who_waits() -> None:
    now = [0.0]
    ceiling, sent = Ceiling(1e6, lambda: now[0]), list[Sender]()
    first, waiting, later = (Sender(ceiling, 1, sent) for _ in range(3))
    first.pump()
    waiting.pump()
    now[0] = 1.0
    later.pump()
    assert sent == [first]
    now[0] = 2.0
    while len(sent) < 3:
        await asyncio.sleep(0)
        now[0] += 1.0
    assert sent == [first, waiting, later]
