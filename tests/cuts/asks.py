"""Stories of what one peer asks of another: a connection, a probe, a reply, a state, a message."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from ictp2p.bulk.frames import Buffer
from ictp2p.bulk.streams import RECEIPT
from ictp2p.calls.messages import Messages
from ictp2p.errors import NetworkError, PeerClosed, RoundTimeout, StateError
from ictp2p.runtime.state_fetch import fetch_state
from ictp2p.runtime.state_provider import Here, serve_state
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.state.lent import Lent
from ictp2p.sync.state.manifest import CHUNK
from ictp2p.sync.state.transfer import TransferProfile
from ictp2p.sync.values import StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import ClusterId, PeerId
from tests.bulk.conftest import PROFILE
from tests.cuts.meshes import Meshed


class Asking(Meshed):
    """The first of two asks the second one."""

    others = (NetworkError, PeerClosed)

    def parts(self) -> Sequence[Any]:
        return [self.ask(self.bulks[0], self.world.names[1])]

    @abstractmethod
    async def ask(self, bulk: Any, peer: PeerId) -> None:
        """What it asks."""

    def further(self) -> Iterator[str]:
        """Connections that were made for something that is over."""
        for bulk in self.bulks:
            if open_ := [each for kept in bulk._pool._ready.values() for each in kept if each.beside]:
                yield f"{open_} are still open"


class Connection(Asking):
    """The first one."""

    warm = False

    async def ask(self, bulk: Any, peer: PeerId) -> None:
        await bulk.connection(peer, 5)


class FromAbove(Connection):
    """Who would leave it to the other one to dial."""

    def parts(self) -> Sequence[Any]:
        return [
            self.bulks[1]._pool.connection(self.world.names[0], 5, patient=True),
            self.bulks[0].connection(self.world.names[1], 5),
        ]


class Dialed(Connection):
    """By the other one, who is asked to."""

    async def prepare(self) -> None:
        self.world.block((0, 1))


class Relayed(Connection):
    """Over a third one."""

    size = 3

    async def prepare(self) -> None:
        a, b, relay = self.world.names
        self.world.block((0, 1), (1, 0))
        self.world.via = {a: [relay], b: [relay]}


class Another(Asking):
    """One more connection, of which nothing is known to anybody else."""

    async def ask(self, bulk: Any, peer: PeerId) -> None:
        (await bulk._pool.another(peer)).hang_up(PeerClosed("that was all"))

    def left(self) -> Iterator[str]:
        yield from super().left()
        yield from self.further()


class AnotherDialed(Another):
    """By the other one, who is asked to."""

    async def prepare(self) -> None:
        await super().prepare()
        self.world.block((0, 1))


class Probe(Asking):
    """Also of several connections."""

    async def ask(self, bulk: Any, peer: PeerId) -> None:
        await bulk.probe(peer, 600_000, timeout=5)


class Reply(Asking):
    """Something is given away: both know that it was, or both that it was not."""

    size_of_it = 200_000

    def __init__(self) -> None:
        super().__init__()
        self.bulks[1].serve("gift", self.give)
        self.room = bytearray(3 * self.size_of_it)
        self.has = False
        self.given: bool | None = None

    async def give(self, peer: PeerId, payload: bytes) -> AsyncGenerator[Buffer, None]:
        self.given = False
        for _ in range(3):
            yield b"x" * self.size_of_it
        yield RECEIPT
        self.given = True

    async def ask(self, bulk: Any, peer: PeerId) -> None:
        try:
            await bulk.request(peer, "gift", b"", self.room, timeout=5, receipt=True)
            self.has = True
            assert self.room == b"x" * len(self.room)
        finally:
            self.room[:] = bytes(len(self.room))

    def left(self) -> Iterator[str]:
        yield from super().left()
        if any(self.room):
            yield "memory was written to after it was given back"
        if self.given and not self.has:
            yield "given, and not there"
        if self.has and not self.given and not self.harmed:
            yield "there, and not given"


class State(Asking):
    """A state is fetched, over several connections once that gains."""

    chunks = 12
    step = 60_000
    profile = replace(PROFILE, stall=2.0)
    others = (StateError, NetworkError, PeerClosed)

    def __init__(self) -> None:
        super().__init__()
        self.tensor = torch.arange(self.chunks * CHUNK // 4, dtype=torch.float32)
        held, self.state = (GlobalState([entry("weight", self.tensor)]) for _ in range(2))
        held.tentative["weight"].copy_(self.tensor)
        held.seal({})
        held.commit(7)
        self.ref = StateRef(7, held.digest, tuple(self.world.names[1:]))
        for bulk in self.bulks[1:]:
            serve_state(bulk, Here(held))
        self.before: tuple[int, torch.Tensor] | None = None

    async def prepare(self) -> None:
        await super().prepare()
        for _, _, end in self.world.links:
            end.step = end.other.step = self.step

    async def ask(self, bulk: Any, peer: PeerId) -> None:
        lent = Lent(self.state)
        try:
            await self.fetch(lent)
            assert torch.equal(self.state.committed["weight"], self.tensor)
        finally:
            lent.take_back()
            self.before = self.state.version, self.state.tentative["weight"].clone()

    async def fetch(self, lent: Lent) -> None:
        clock = asyncio.get_running_loop().time
        profile = TransferProfile(horizon=0.0005, pause=0.1)
        await fetch_state(self.bulks[0], self.ref, lent, Telemetry(clock), clock, profile)

    def left(self) -> Iterator[str]:
        yield from super().left()
        if self.before is not None:
            version, tensor = self.before
            if version != self.state.version or not torch.equal(tensor, self.state.tentative["weight"]):
                yield "the state was written to after it was given back"
        yield from self.further()

    async def again(self) -> None:
        await super().again()
        if not self.closing and not self.state.version:
            await self.fetch(Lent(self.state))
            assert torch.equal(self.state.committed["weight"], self.tensor)
        self.before = None


class Message(Meshed):
    """The second of two sends the first one a message."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = [Messages(self.leader(number)) for number in range(2)]
        self.bodies = [torch.arange(300_000).to(torch.uint8), torch.arange(7).to(torch.uint8)]
        self.has = False

    def leader(self, number: int) -> Any:
        """One who leads, and knows who else does."""
        directory = SimpleNamespace(leader_of=lambda cluster: self.world.names["ab".index(cluster)])
        return SimpleNamespace(
            cluster="ab"[number],
            bulk=self.bulks[number],
            core=SimpleNamespace(leading=True, directory=directory),
            subscribe=lambda subscriber: None,
            random_bytes=self.world.rng.randbytes,
        )

    def allowed(self, who: int) -> tuple[type[BaseException], ...]:
        if who in self.cancelled or who in self.closing:
            return asyncio.CancelledError, PeerClosed
        return (RoundTimeout,) if self.cancelled or self.closing else ()

    def parts(self) -> Sequence[Any]:
        return [self.receive(0), self.send(0)]

    async def send(self, number: int) -> None:
        await self.messages[1].send(self.bodies[number], b"", ClusterId("a"), 7, 2.0)

    async def receive(self, number: int) -> None:
        body = self.bodies[number]
        assert torch.equal(await self.messages[0].receive(len(body), b"", ClusterId("b"), 7, 2.0), body)

    def left(self) -> Iterator[str]:
        yield from super().left()
        for number, each in enumerate(self.messages):
            for what in ("_boxes", "_asking", "_moving", "_lines"):
                if len(getattr(each, what)):
                    yield f"{what} of {number}"
        received, sent = (not each.cancelled() and each.exception() is None for each in self.tasks)
        if sent and not received and 0 not in self.cancelled:
            yield "sent, and not received"

    async def again(self) -> None:
        await super().again()
        if not self.closing:
            await asyncio.gather(self.receive(1), self.send(1))
