"""From a relay back to a direct connection: when it is looked for, when it counts, and what becomes of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import torch

from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.upgrades import FIRST_PAUSE, LONGEST_PAUSE, Upgrades
from ictp2p.collectives.running.execute import all_reduce
from ictp2p.errors import ConnectionLost, IctError, Unreachable
from ictp2p.types import PeerId
from tests.bulk.conftest import PROFILE, Mesh
from tests.bulk.reducing import plan_of, tag

Meshes = Callable[..., Mesh]
PEER = PeerId("1" * 32)


@dataclass(eq=False)
class Connection:
    """As much of a connection as is looked at."""

    relayed: bool = True
    beside: bool = False
    superseded: bool = False
    closed: bool = False
    idle: bool = True
    received: int = 0
    ready_at: float = 0.0
    peer: PeerId = PEER
    reasons: list[IctError] = field(default_factory=list)

    def hang_up(self, error: IctError) -> None:
        self.closed = True
        self.reasons.append(error)


class Story:
    """One peer's connections to another one, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.dialed: list[float] = []
        self.upgrades = Upgrades(self.dial, lambda: self.now, PROFILE.stall)
        self.relayed, self.direct = Connection(), Connection(relayed=False)

    async def dial(self, peer: PeerId) -> BulkConnection:
        assert peer == PEER
        self.dialed.append(self.now)
        raise Unreachable("the line is cut")

    def used(self, connection: Connection) -> None:
        self.upgrades.used(cast("Any", connection))

    def lost(self, _: Connection, *kept: Connection) -> None:
        self.upgrades.lost(cast("Any", kept))

    def ready(self, made: Connection, *kept: Connection) -> None:
        self.upgrades.ready(cast("Any", made), cast("Any", [made, *kept]))


def over_a_relay(mesh: Meshes) -> Mesh:
    """Two peers between whom the line is cut, and a third."""
    world = mesh(3)
    world.block((0, 1), (1, 0))
    world.via[world.names[0]] = [world.names[2]]
    return world


async def test_a_pair_whose_line_is_there_again_leaves_the_relay_at_both_ends(mesh: Meshes) -> None:
    """Regression: it sent over the relay for as long as that lived."""
    world = over_a_relay(mesh)
    (a, b, _), bulks = world.names, world.bulks
    assert (await bulks[a].connection(b, 4)).relayed
    world.blocked.clear()
    await asyncio.sleep(FIRST_PAUSE)
    assert (await bulks[a].connection(b, 4)).relayed, "nobody waits for the direct one"
    await asyncio.sleep(0.1)
    for _ in range(3):
        assert not (await bulks[a].connection(b, 4)).relayed
        assert not (await bulks[b].connection(a, 4)).relayed
        await asyncio.sleep(PROFILE.stall)
    assert bulks[a].connections == bulks[b].connections == 1


async def test_whoever_of_the_two_can_dial_does(mesh: Meshes) -> None:
    world = over_a_relay(mesh)
    (a, b, _), bulks = world.names, world.bulks
    await bulks[a].connection(b, 4)
    world.blocked = {(a, b)}
    await asyncio.sleep(FIRST_PAUSE)
    for me, other in ((a, b), (b, a)):
        await bulks[me].connection(other, 4)
    await asyncio.sleep(0.1)
    assert not (await bulks[a].connection(b, 4)).relayed


async def test_a_way_is_looked_for_after_pauses_that_double_up_to_ten_minutes() -> None:
    story = Story()
    while story.now < 5 * LONGEST_PAUSE:
        story.used(story.relayed)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        story.now += 1.0
    pauses = [then - now for now, then in pairwise([0.0, *story.dialed])]
    assert pauses[:4] == [FIRST_PAUSE * 2**n for n in range(4)]
    assert max(pauses) == LONGEST_PAUSE == pauses[-1]


async def test_who_is_reached_directly_is_not_dialed() -> None:
    story = Story()
    story.now = 1e6
    story.used(story.direct)
    await asyncio.sleep(0)
    assert not story.dialed


def test_a_direct_connection_that_becomes_ready_comes_before_relayed_ones_and_an_older_one_does_not() -> None:
    story = Story()
    story.ready(story.relayed, story.direct)
    assert not story.relayed.superseded
    story.ready(Connection(relayed=False, beside=True), story.relayed)
    assert not story.relayed.superseded, "what one end has for itself is nobody's first"
    story.ready(story.direct, story.relayed)
    assert story.relayed.superseded
    assert not story.direct.superseded


def test_what_is_superseded_ends_once_nothing_has_passed_for_as_long_as_a_stall() -> None:
    story = Story()
    story.ready(story.direct, story.relayed)
    story.relayed.idle = False
    for _ in range(5):  # in use here
        story.now += PROFILE.stall
        story.used(story.direct)
    story.relayed.idle = True
    for _ in range(5):  # and then at the other end
        story.now += PROFILE.stall
        story.relayed.received += 1
        story.used(story.direct)
    story.now += PROFILE.stall * 0.5
    story.used(story.direct)
    assert not story.relayed.closed
    story.now += PROFILE.stall * 0.6
    story.used(Connection(relayed=False, peer=PeerId("2" * 32)))
    assert story.relayed.closed, "be it that nobody wants anything of this peer any more"
    story.used(story.direct)
    assert len(story.relayed.reasons) == 1


async def test_what_is_superseded_is_there_when_the_direct_one_is_lost() -> None:
    story = Story()
    story.ready(story.direct, story.relayed)
    story.lost(Connection(), story.relayed, story.direct)
    assert story.relayed.superseded, "the direct one is there"
    story.lost(story.direct, story.relayed)
    assert not story.relayed.superseded
    story.now += 10 * PROFILE.stall
    story.used(story.relayed)
    assert not story.relayed.closed


async def test_what_is_dialed_when_the_peer_is_closed_leaves_nothing_behind(mesh: Meshes) -> None:
    world = over_a_relay(mesh)
    (a, b, _), bulks = world.names, world.bulks
    await bulks[a].connection(b, 4)
    world.blocked.clear()
    await asyncio.sleep(FIRST_PAUSE)
    await bulks[a].connection(b, 4)
    await bulks[a].close()
    await asyncio.sleep(PROFILE.handshake)
    assert bulks[a].connections == bulks[b].connections == 0
    assert all(end.is_closing() for end in world.ends(0))


async def test_the_last_way_is_not_let_go_when_something_else_begins(mesh: Meshes) -> None:
    """Regression: once the direct one was lost, whatever began with anybody ended the relayed one, the last."""
    world = over_a_relay(mesh)
    (a, b, c), bulks = world.names, world.bulks
    await bulks[a].connection(b, 4)
    await bulks[a].connection(c, 4)
    world.blocked.clear()
    await asyncio.sleep(FIRST_PAUSE)
    await bulks[a].connection(b, 4)
    await asyncio.sleep(0.1)
    direct = await bulks[a].connection(b, 4)
    assert not direct.relayed
    direct.fail(ConnectionLost("the line is cut again"))
    await asyncio.sleep(2 * PROFILE.stall)
    await bulks[a].connection(c, 4)
    await asyncio.sleep(0.1)
    for me, other in ((a, b), (b, a)):
        left = bulks[me]._pool.warm(other)
        assert left is not None
        assert left.relayed


async def test_who_only_reduces_leaves_the_relay_as_well(mesh: Meshes) -> None:
    """Regression: a collective whose connections were all there took them as they were."""
    world = over_a_relay(mesh)
    (a, b, _), bulks = world.names, world.bulks
    plan = plan_of([a, b], "star", 4, 4)

    async def reduce(attempt: int) -> None:
        given, results = [torch.ones(4)], [[torch.zeros(4)] for _ in range(2)]
        name, ends = tag(plan, attempt), ((0, bulks[a]), (1, bulks[b]))
        await asyncio.gather(*(all_reduce(plan, n, given, results[n], me, name, op="sum") for n, me in ends))
        assert all(bool((result == 2).all()) for (result,) in results)

    def relayed() -> list[bool]:
        return [way.relayed for way in (bulks[a]._pool.warm(b), bulks[b]._pool.warm(a)) if way is not None]

    await reduce(1)
    assert relayed() == [True, True]
    world.blocked.clear()
    await asyncio.sleep(FIRST_PAUSE)
    await reduce(2)
    await asyncio.sleep(0.1)
    assert relayed() == [False, False]
    await reduce(3)
