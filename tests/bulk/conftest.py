"""A mesh of `Bulk`s joined by transports in memory, whose links a test may cut, stop and refuse.

Its time is that of `TurnLoop`, so that no deadline of a test depends on how fast this machine is, or on its pauses.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import random
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from ictp2p.bulk import Agreed, Bulk, BulkProfile, KeyAgreement
from ictp2p.errors import HandshakeFailed, Unreachable
from ictp2p.types import PeerId, Transfer
from sim.loop import SimLoop

TURN = 20e-6  # seconds: about what a turn of a real loop takes


PROFILE = BulkProfile(stall=0.4, handshake=0.4, patience=0.05, high_water=64 * 1024)


def name(number: int) -> PeerId:
    return PeerId(f"{number:032x}")


class TurnLoop(SimLoop):
    """A loop whose time is its own work: `TURN` for each turn, and what nobody works in is skipped."""

    def _run_once(self) -> None:
        self.now += TURN
        self._moment = 0
        self._fall_due()
        super()._run_once()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Have the tests of this folder run on that loop."""
    return {"turns": TurnLoop}


def run_turns(story: Coroutine[Any, Any, None]) -> None:
    """Run one example of a property on such a loop."""
    with asyncio.Runner(loop_factory=TurnLoop) as runner:
        runner.run(story)


class Ended(asyncio.Transport):
    """Has a socket, and sends nothing."""

    def __init__(self, endpoint: socket.socket) -> None:
        super().__init__({"socket": endpoint})
        self.write_limits: tuple[int | None, int | None] | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.write_limits = high, low

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        """Drop it."""

    def abort(self) -> None:
        """Leave the socket to the test."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            yield near, far


class MemoryTransport(asyncio.Transport):
    """One end of a link: hands out at most `step` bytes per turn of the event loop."""

    def __init__(self, step: int = 50_000) -> None:
        super().__init__()
        self.other: MemoryTransport
        self.frozen = False
        """Delivers nothing, as if the process at the far end had stopped."""
        self.step = step
        self.sent = bytearray()
        self._protocol: asyncio.BaseProtocol = asyncio.BufferedProtocol()
        self._out: deque[memoryview] = deque()
        self._size = 0
        self._reading = True
        self._awake = False
        self._closing = self._ended = self._eof = False
        self._limits = (65536, 16384)
        self._paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.other._wake()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = 65536 if high is None else high
        self._limits = (high, high // 4 if low is None else low)
        self._press()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits[1], self._limits[0]

    def get_write_buffer_size(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self._out.append(memoryview(data).cast("B"))  # by reference, as uvloop does
        self._size += len(data)
        self.sent += data
        self._press()
        self._wake()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._eof = True
        self._wake()

    def close(self) -> None:
        self._closing = True
        self._wake()

    def abort(self) -> None:
        self._drop()
        self._end(None)
        self.other._drop()
        self.other._end(ConnectionResetError("aborted"))

    def reset(self) -> None:
        """Break the link, as a process that is killed does."""
        for end in (self, self.other):
            end._drop()
            end._end(ConnectionResetError("killed"))

    def _drop(self) -> None:
        self._out.clear()
        self._size = 0

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        self._awake = False
        if self.other._ended and not self._ended:
            self._drop()
            self._end(None)
        if self.frozen or not self.other._reading or self._ended:
            return
        if self._out:
            amount = self.other._receive(self._out[0][: self.step])
            if self._out:  # the receiver may have dropped the link
                self._out[0] = self._out[0][amount:]
                self._size -= amount
                if not self._out[0]:
                    self._out.popleft()
            if self._paused and self._size <= self._limits[1]:
                self._paused = False
                self.get_protocol().resume_writing()
            self._wake()
        elif self._closing or self._eof:
            self._eof = False
            self.other.get_protocol().eof_received()
            self.other.close()
            if self._closing:
                self._end(None)

    def _receive(self, data: memoryview) -> int:
        protocol = self.get_protocol()
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = protocol.get_buffer(len(data))
            amount = min(len(buffer), len(data))
            assert amount, "an empty buffer is an error in asyncio"
            buffer[:amount] = data[:amount]
            protocol.buffer_updated(amount)
            return amount
        return 0

    def _press(self) -> None:
        if not self._paused and self._size > self._limits[0]:
            self._paused = True
            self.get_protocol().pause_writing()

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = self._closing = True
            asyncio.get_running_loop().call_soon(self.get_protocol().connection_lost, error)
            self.other._wake()


class Mesh:
    """Some peers, who can all dial each other unless a test says otherwise."""

    def __init__(self, size: int, profile: BulkProfile = PROFILE, seed: int = 0) -> None:
        self.names = [name(n) for n in range(size)]
        self.blocked: set[tuple[PeerId, PeerId]] = set()
        self.via: dict[PeerId, list[PeerId]] = {}
        self.deaf: set[PeerId] = set()
        """Do not answer requests to dial."""
        self.links: list[tuple[PeerId, PeerId, MemoryTransport]] = []
        self.samples: list[tuple[PeerId, PeerId, Transfer]] = []
        self.shrunk: list[PeerId] = []
        """Who wants small packets of others, as often as it says so."""
        self.tasks: list[asyncio.Task[None]] = []
        self.rng = random.Random(seed)
        self.bulks = {me: self.join(me, profile) for me in self.names}

    def join(self, me: PeerId, profile: BulkProfile, keys: KeyAgreement | None = None) -> Bulk:
        return Bulk(
            me,
            keys or self.keys(me),
            lambda peer, timeout: self.dial(me, peer, timeout),
            profile=profile,
            ask_dial=lambda peer, ticket: self.ask(me, peer, ticket),
            relays=lambda peer: self.via.get(me, []),
            on_transfer=lambda peer, transfer: self.samples.append((me, peer, transfer)),
            clock=lambda: asyncio.get_running_loop().time(),
            random_bytes=self.rng.randbytes,
            membership=b"of this mesh",
            shrink=lambda host: self.shrunk.append(me),
        )

    def keys(self, me: PeerId) -> KeyAgreement:
        def agree(peer: PeerId, context: bytes) -> Agreed:
            if peer not in self.names:
                raise HandshakeFailed(f"{peer} is not known")
            send, receive = (hashlib.blake2b(context + who.encode(), digest_size=16).digest() for who in (me, peer))
            return Agreed(send, receive, me.encode(), functools.partial(self.check, peer))

        return agree

    def check(self, peer: PeerId, proof: bytes) -> None:
        if not proof.startswith(peer.encode()):
            raise HandshakeFailed(f"{peer} does not prove to be it")

    async def dial(self, me: PeerId, peer: PeerId, timeout: float) -> asyncio.Transport:
        await asyncio.sleep(0)
        if (me, peer) in self.blocked:
            raise Unreachable(f"{me[-2:]} cannot dial {peer[-2:]}")
        mine, theirs = MemoryTransport(), MemoryTransport()
        mine.other, theirs.other = theirs, mine
        self.links.append((me, peer, mine))
        self.bulks[peer].accept(theirs)
        return mine

    def ask(self, me: PeerId, peer: PeerId, ticket: bytes) -> None:
        if peer not in self.deaf:
            self.tasks.append(asyncio.get_running_loop().create_task(self.answer(me, peer, ticket)))

    async def answer(self, me: PeerId, peer: PeerId, ticket: bytes) -> None:
        try:
            await self.bulks[peer].answer_ticket(me, ticket)
        except Unreachable:
            return

    def block(self, *pairs: tuple[int, int]) -> None:
        self.blocked |= {(name(a), name(b)) for a, b in pairs}

    def ends(self, number: int) -> list[MemoryTransport]:
        """Give the transports at the peer's side of all its links."""
        me = name(number)
        return [end if a == me else end.other for a, b, end in self.links if me in (a, b)]

    def kill(self, number: int) -> None:
        """End a peer as `kill -9` does: its connections are reset, it accepts none, it says nothing."""
        for end in self.ends(number):
            end.reset()
        self.blocked |= {(other, name(number)) for other in self.names}
        self.blocked |= {(name(number), other) for other in self.names}
        self.deaf.add(name(number))

    def stop(self, number: int) -> None:
        """Stop a peer as SIGSTOP does: it neither reads nor writes, but its connections stand."""
        for end in self.ends(number):
            end.frozen = end.other.frozen = True

    async def close(self) -> None:
        await asyncio.gather(*self.tasks)
        for end in [end for _, _, end in self.links]:
            end.frozen = end.other.frozen = False
        await asyncio.gather(*(bulk.close() for bulk in self.bulks.values()))


@pytest.fixture
async def mesh() -> AsyncIterator[Callable[..., Mesh]]:
    made: list[Mesh] = []

    def make(size: int, **options: object) -> Mesh:
        made.append(Mesh(size, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
def link() -> Callable[[], MemoryTransport]:
    def make() -> MemoryTransport:
        one, two = MemoryTransport(), MemoryTransport()
        one.other, two.other = two, one
        return one

    return make


@pytest.fixture
def names() -> Callable[[int], Sequence[PeerId]]:
    return lambda size: [name(n) for n in range(size)]
