"""A relay before a slow line: whoever sends over it sees that bytes move, and gives up nobody who is only slow."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from ictp2p.bulk import Agreed, Bulk, BulkProfile
from ictp2p.errors import NetworkError, Unreachable
from ictp2p.types import Address, PeerId
from sim.chance import Chance
from sim.internet import Internet
from sim.loop import Process, SimLoop
from sim.network import SimNetwork
from sim.topology import Topology

SENDER, RELAY, TARGET = "sender", "relay", "target"
HOSTS = {SENDER: "10.0.0.1", RELAY: "10.0.0.2", TARGET: "10.0.0.3"}
IDS = {name: PeerId(f"{number:032x}") for number, name in enumerate(HOSTS)}
SIZE = 12_000_000
"""Bytes: much more than everybody on the way holds, so that the sender is not done with them soon."""


class Accepting(asyncio.Protocol):
    """Gives what was dialed to a peer's bulk connections."""

    def __init__(self, accept: Callable[[asyncio.Transport], None]) -> None:
        self._accept = accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._accept(transport)


class Line:
    """Three peers, two of which meet at the third, which has a slow line to one of them."""

    def __init__(self, rate: float) -> None:
        self.loop = SimLoop()
        topology = Topology()
        topology.default.delay = 0.01
        topology.link(RELAY, TARGET).bandwidth = rate
        self.net = Internet(self.loop, Chance(1), topology)
        self.processes = {name: Process(name) for name in HOSTS}
        for name, host in HOSTS.items():
            self.net.host(name, name, host)
            self.net.boot(name, self.processes[name])
        self.bulks = {name: self.run(name, self._bulk(name)) for name in HOSTS}
        self.into = bytearray(SIZE)

    def run(self, name: str, story: Coroutine[Any, Any, Any]) -> Any:
        """Have a peer do something."""
        return self.loop.run_until_complete(self.start(name, story))

    def start(self, name: str, story: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Have a peer begin with something."""
        return self.loop.create_task(story, context=self.processes[name].context)

    async def fetched(self) -> None:
        """Have the target ask for everything."""
        assert await self.bulks[TARGET].request(IDS[SENDER], "all", b"", self.into, timeout=1e6) == SIZE

    def close(self) -> None:
        """End everybody."""
        for name, bulk in self.bulks.items():
            self.run(name, bulk.close())

    async def _bulk(self, me: str) -> Bulk:
        network = SimNetwork(self.net, self.processes[me])
        names = {number: name for name, number in IDS.items()}

        def keys(peer: PeerId, context: bytes) -> Agreed:
            send, receive = (hashlib.blake2b(context + who.encode(), digest_size=16) for who in (IDS[me], peer))
            return Agreed(send.digest(), receive.digest())

        async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
            if RELAY not in (me, names[peer]):
                raise Unreachable(peer)
            address = Address(HOSTS[names[peer]], 7000)
            transport, _ = await network.connect(asyncio.Protocol, address, timeout)
            return transport

        async def everything(peer: PeerId, payload: bytes) -> AsyncIterator[bytes]:
            yield bytes(SIZE)

        made = Bulk(
            IDS[me],
            keys,
            dial,
            profile=BulkProfile(),
            relays=lambda peer: [] if me == RELAY else [IDS[RELAY]],
            clock=self.loop.time,
            random_bytes=Chance(1).generator(me).randbytes,
            membership=b"of this mesh",
        )
        made.serve("all", everything)
        await network.serve(lambda: Accepting(made.accept), Address(HOSTS[me], 7000))
        return made


@pytest.mark.parametrize("rate", [10e3, 30e3, 100e3, 150e3])
def test_whoever_sends_over_a_relay_before_a_slow_line_gives_up_nobody(rate: float) -> None:
    """Regression: it did below 150 kB/s, for the relay took nothing of its bytes for many seconds at a time."""
    line = Line(rate)
    line.run(TARGET, line.fetched())
    assert line.loop.now == pytest.approx(SIZE / rate, rel=0.1)
    line.close()


def test_a_target_behind_a_relay_that_stops_is_found_out_within_the_deadline() -> None:
    line, stall = Line(50e3), BulkProfile().stall
    fetching = line.start(TARGET, line.fetched())
    line.loop.run_to(30)
    (connection,) = line.bulks[SENDER]._pool.among(IDS[TARGET])
    assert connection.relayed
    line.loop.pause(line.processes[TARGET])
    line.loop.run_to(30 + 0.9 * stall)
    assert not connection.closed
    line.loop.run_to(30 + 1.3 * stall)
    assert connection.closed
    line.loop.resume(line.processes[TARGET])
    with pytest.raises(NetworkError):
        line.loop.run_until_complete(fetching)
    line.close()
