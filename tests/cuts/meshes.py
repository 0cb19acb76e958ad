"""Stories of peers whose data connections are real, over transports in memory, and what may be left of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import torch

from ictp2p.bulk import Bulk, BulkProfile
from ictp2p.bulk.connection import BulkConnection
from ictp2p.errors import ConnectionLost
from tests.bulk.conftest import PROFILE, Mesh
from tests.bulk.reducing import plan_of, reduce_all
from tests.cuts.search import Fault, Story

LATER = 9
"""Attempts of a round that were not told by then."""


class Meshed(Story):
    """Some peers."""

    size = 2
    profile: BulkProfile = PROFILE
    warm = True
    """Whether they are connected before."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Mesh(self.size, profile=self.profile)
        self.bulks = list(self.world.bulks.values())
        self.closing: dict[int, asyncio.Task[None]] = {}
        self.harmed = False
        """Whether a connection was broken."""

    async def prepare(self) -> None:
        names = self.world.names
        for a in range(self.size if self.warm else 0):
            for b in range(a + 1, self.size):
                await self.bulks[a].connection(names[b], 1)

    def shut(self, who: int) -> None:
        """Close one of them."""
        self.harmed = True
        self.closing[who] = asyncio.ensure_future(self.bulks[who].close())

    async def ended(self) -> None:
        await asyncio.gather(*self.closing.values())

    def left(self) -> Iterator[str]:
        for number, bulk in enumerate(self.bulks):
            for what, value in _tables(bulk).items():
                if value and what not in (self.ends if number in self.closing else ()):
                    yield f"{what} of {number}: {value!r}"[:300]
        for a, one in enumerate(self.bulks):
            for b, other in enumerate(self.bulks[:a]):
                ends = len(one._pool.among(other.me)), len(other._pool.among(one.me))
                if ends[0] != ends[1]:
                    yield f"connections of {a} and {b}: {ends}"

    ends: tuple[str, ...] = ()

    async def again(self) -> None:
        """Add up once more, unless somebody has gone."""
        if self.closing:
            return
        plan = plan_of(list(self.world.names), "star", 50, 50)
        inputs, outputs = [[torch.ones(50)] for _ in self.bulks], [[torch.zeros(50)] for _ in self.bulks]
        for outcome in await reduce_all(self.world, plan, inputs, outputs, op="sum"):
            if isinstance(outcome, BaseException):
                raise outcome
        assert all(bool((each == self.size).all()) for (each,) in outputs), "the next sum is wrong"

    async def close(self) -> None:
        await asyncio.gather(*self.world.tasks, return_exceptions=True)
        self.world.tasks.clear()
        await self.world.close()


def _tables(bulk: Bulk) -> dict[str, Any]:
    """What a peer that does nothing has nothing in."""
    pool, probing, attaching = bulk._pool, bulk.probing, bulk.attaching
    found = {
        "users": bulk._users,
        "tasks": len(bulk._tasks),
        "called": attaching._called,
        "awaited": attaching._awaited,
        "rates": [rates for rates in attaching._rates.values() if rates],
        "opening": pool._opening,
        "half open": pool._half_open,
        "greeting": pool._greeting,
        "arrivals": pool._arrivals,
        "tickets": pool._relay._tickets,
        "relaying": pool._relay._tasks,
        "sending": probing._sending,
        "receiving": probing._receiving,
        "probing": probing.turns._probing,
        "waiting": probing.turns._waiting,
        "stripes opening": probing.stripes._opening,
        "closed stripes": [each for kept in probing.stripes._kept.values() for each in kept if each.closed],
        "desks": set(bulk._desks) ^ {each for kept in pool._ready.values() for each in kept},
    }
    for desk in bulk._desks.values():
        found |= {"serving": desk._serving, "served": +desk._served}
        found |= {"early": desk.early._kept, "dropped": desk.early._dropped}
    for kept in pool._ready.values():
        for each in kept:
            found |= {f"{what} of {each}": value for what, value in _connection(each).items() if value}
    return found


def _connection(connection: BulkConnection) -> dict[str, Any]:
    """What a connection that nobody uses has nothing in."""
    return {
        "users": connection._users,
        "heeding": connection._liveness.heeding,
        "speaking": connection._liveness.speaking,
        "willing": connection._willing,
        "asked": connection.backlog._asked,
        "bucket": connection._throttle.bucket,
        "drained": connection._outbound._drained,
        "control": connection._control,
        "paused": connection._paused,
        "pending": connection.pending,
        "closed": connection.closed,
    }


def cancels(who: int) -> Fault:
    """Cancel one who takes part."""
    return lambda story: story.cancel(who)


def breaks(number: int) -> Fault:
    """Break a connection, if it is there."""

    def strike(story: Meshed) -> None:
        for _, _, end in story.world.links[number : number + 1]:
            story.harmed = True
            end.reset()

    return strike


def hangs_up(number: int) -> Fault:
    """End a connection as one who has what it wants does."""

    def strike(story: Meshed) -> None:
        for _, _, end in story.world.links[number : number + 1]:
            story.harmed, protocol = True, end.get_protocol()
            if isinstance(protocol, BulkConnection):
                protocol.hang_up(ConnectionLost("it has what it wants"))

    return strike


def closes(who: int) -> Fault:
    """Close one who takes part."""
    return lambda story: story.shut(who)
