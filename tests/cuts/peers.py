"""Stories of whole peers on simulated sockets: they start, leave and are closed, and nothing of them stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from ictp2p.async_peer import AsyncPeer
from ictp2p.config import Config, Timeouts
from ictp2p.disk import MemoryDisk
from ictp2p.edge.security import PlainSecurity
from ictp2p.errors import NetworkError, PeerClosed, RoundError
from ictp2p.runtime.reduction import Reduction
from sim.chance import Chance
from sim.internet import Internet
from sim.loop import Process, SimLoop
from sim.network import SimNetwork
from sim.topology import Topology
from tests.cuts.search import Fault, Story
from tests.cuts.sums import GONE
from tests.meshed import reduction

ELEMENTS = 6_000
_PATIENCE = 2.0
"""Virtual seconds for a round: who is left alone in one waits for ever."""
_WAITS = Timeouts(connect=1.0, stall=1.0, form=3.0, complete=5.0)


class Peers(Story):
    """Peers that found a mesh, or are in one, each the only one of its cluster."""

    names = "ab"
    others = (NetworkError, PeerClosed)

    def __init__(self) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        self.net = Internet(loop, Chance(1), Topology())
        for number, name in enumerate(self.names):
            self.net.host(name, name, f"10.0.0.{number + 1}")
        self.disks = {name: MemoryDisk() for name in self.names}
        self.lives = 0
        self.peers: dict[str, AsyncPeer] = {}
        self.closing: list[asyncio.Task[Any]] = []
        self.first: AsyncPeer | None = None
        """Whom the story is about, as long as nobody follows it."""

    async def prepare(self) -> None:
        """Nobody is there."""

    def make(self, name: str, join: str = "") -> AsyncPeer:
        """A peer on a host, that joins another one."""
        self.lives += 1
        process = Process(name)
        self.net.boot(name, process)
        dice = Chance(self.lives).generator(name)
        seeds = tuple(f"{self.net.addresses[other]}:7450" for other in join)
        listen = f"{self.net.addresses[name]}:7450"
        peer = self.peers[name] = AsyncPeer(
            Config.local(cluster=name, token="cut again and again", listen=listen, join=seeds, global_timeouts=_WAITS),
            network=SimNetwork(self.net, process),
            clock=self.loop.time,
            rng=dice,
            random_bytes=dice.randbytes,
            disk=self.disks[name],
            security=lambda identity: PlainSecurity(identity, b"cutagain"),
        )
        return peer

    def shut(self, name: str) -> None:
        """Close one of them."""
        self.closing.append(asyncio.ensure_future(self.peers[name].close()))

    async def ended(self) -> None:
        await asyncio.gather(*self.closing)

    async def whole(self) -> None:
        """Wait until all know each other."""
        while not all({*peer.core.m.mesh.alive(), name} >= set(self.names) for name, peer in self.peers.items()):
            await asyncio.sleep(0.05)

    def of(self, name: str) -> Iterator[str]:
        """What should not be there any more of a peer that was closed."""
        peer, host = self.peers[name], self.net.addresses[name]
        if any(address.host == host for address in self.net.listeners):
            yield f"{name} still listens"
        if ends := [each for each in self.net.endpoints if each.local == name and not each._ended]:
            yield f"{name} still has {ends}"
        if peer._tasks:
            yield f"{name} still has {list(peer._tasks._running)}"

    async def close(self) -> None:
        for peer in self.peers.values():
            await peer.close()
        for name in self.peers:
            if wrong := list(self.of(name)):
                raise AssertionError(wrong)


class Founding(Peers):
    """One starts, with nobody there."""

    names = "a"

    def parts(self) -> Sequence[Any]:
        self.first = self.make(self.names[-1], self.names[:-1])
        return [self.first.start()]

    def over(self) -> bool:
        """Whether the one that starts is to be found nowhere any more."""
        return bool(self.closing) or self.tasks[0].cancelled() or self.tasks[0].exception() is not None

    def left(self) -> Iterator[str]:
        if self.over() and self.peers[self.names[-1]] is self.first:
            yield from self.of(self.names[-1])

    async def again(self) -> None:
        self.first = None
        if self.over():
            await self.make(self.names[-1], self.names[:-1]).start()
        await self.whole()


class Joining(Founding):
    """One starts where another one is."""

    names = "ab"

    async def prepare(self) -> None:
        await self.make("a").start()


class Met(Peers):
    """Who know each other."""

    async def prepare(self) -> None:
        await self.make("a").start()
        await self.make("b", "a").start()
        await self.whole()


class Leaving(Met):
    """One leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = False

    def parts(self) -> Sequence[Any]:
        return [self.peers["b"].leave()]

    def left(self) -> Iterator[str]:
        if not self.gone:
            yield from self.of("b")

    async def again(self) -> None:
        self.gone = True
        await self.make("b", "a").start()
        await self.whole()


class Closing(Leaving):
    """One is closed."""

    def parts(self) -> Sequence[Any]:
        return [self.peers["b"].close()]


class Round(Met):
    """They add up, as leaders of their clusters."""

    others = (TimeoutError, RoundError, NetworkError, PeerClosed)

    def __init__(self) -> None:
        super().__init__()
        self.returned: dict[str, Reduction] = {}
        self.right: dict[str, bool] = {}

    async def prepare(self) -> None:
        await super().prepare()
        await self.ready()

    async def ready(self) -> None:
        for peer in self.peers.values():
            peer.set_training(True)
        while not all(sum(c["training"] for c in p.status()["clusters"]) == 2 for p in self.peers.values()):
            await asyncio.sleep(0.05)

    def parts(self) -> Sequence[Any]:
        return [self.part(name) for name in self.names]

    async def part(self, name: str) -> None:
        work = reduction(float(self.names.index(name)), ELEMENTS)
        try:
            async with asyncio.timeout(_PATIENCE):
                done = await self.peers[name].reduce(work)
            expected = sum(map(self.names.index, done.participants)) / len(done.participants)
            self.right[name] = bool((work.outputs[0] == expected).all())
        finally:
            self.returned[name] = work
            work.outputs[0].fill_(GONE)

    def left(self) -> Iterator[str]:
        yield from (f"the average of {name} is wrong" for name, right in self.right.items() if not right)
        for name, work in self.returned.items():
            if not bool((work.outputs[0] == GONE).all()):
                yield f"{name} had its memory written to after its call had returned"
        for name, peer in self.peers.items():
            if peer.participation._standing is not None:
                yield f"something of {name} stands still"
            if held := peer.bulk.collectives():
                yield f"{name} is still at {held}"

    async def again(self) -> None:
        self.right.clear()
        for name in {*self.names} if self.closing else ():
            if self.peers[name]._closed:
                return
        await asyncio.gather(*self.parts())
        assert len(self.right) == 2


def cuts(number: int) -> Fault:
    """Break a connection, as a host that lost its power and is back does."""

    def strike(story: Peers) -> None:
        for end in list(story.net.endpoints)[number : number + 1]:
            end.abort()

    return strike


def shuts() -> Fault:
    """Close a peer, the last one that began, while it does something else."""
    return lambda story: story.shut(story.names[-1])
