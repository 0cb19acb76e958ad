"""One story on simulated and on real sockets: the same protocol events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ictp2p.async_peer import AsyncPeer
from ictp2p.config import Config
from ictp2p.edge.network import TcpNetwork
from ictp2p.edge.security import PlainSecurity
from sim.chance import Chance
from sim.internet import Internet
from sim.loop import Process, SimLoop
from sim.network import SimNetwork
from sim.topology import Topology

Make = Callable[[str, tuple[str, ...]], AsyncPeer]


async def story(make: Make) -> list[tuple[str, ...]]:
    """B joins a, and leaves again; what a sees of it."""
    a = make("a", ())
    await a.start()
    seen: list[tuple[str, ...]] = []
    joined, routed, left, unrouted = (asyncio.Event() for _ in range(4))

    def told(event: object) -> None:
        kind, fields = event.kind, event.fields  # type: ignore[attr-defined]
        if kind == "member" and fields["scope"] == "mesh":
            seen.append((kind, fields["member"], fields["status"]))
            joined.set() if fields["status"] == "alive" else left.set() if fields["status"] == "left" else None
        elif kind == "route" and fields["traffic_class"] == 0:
            seen.append((kind, fields["destination"], str(fields["next_hop"])))
            (unrouted if fields["next_hop"] is None else routed).set()

    a.telemetry.subscribe(told)
    b = make("b", (str(a.address),))
    await b.start()
    async with asyncio.timeout(30):
        await joined.wait()
        await routed.wait()
        await b.leave()
        await left.wait()
        await unrouted.wait()
    await a.close()
    return [event for event in seen if "suspect" not in event]


def _config(name: str, listen: str, join: tuple[str, ...]) -> Config:
    return Config.local(cluster=name, token="parity-of-two-worlds", listen=listen, join=join)


def _simulated() -> list[tuple[str, ...]]:
    loop, topology = SimLoop(), Topology()
    net = Internet(loop, Chance(1), topology)

    def make(name: str, join: tuple[str, ...]) -> AsyncPeer:
        ip = "10.0.0.1" if name == "a" else "10.0.0.2"
        net.host(name, name, ip)
        process = Process(name)
        net.boot(name, process)
        dice = Chance(2).generator(name)
        return AsyncPeer(
            _config(name, f"{ip}:7450", join),
            network=SimNetwork(net, process),
            clock=loop.time,
            rng=dice,
            random_bytes=dice.randbytes,
            security=lambda identity: PlainSecurity(identity, b"parity!!"),
        )

    return loop.run_until_complete(story(make))


def _real() -> list[tuple[str, ...]]:
    def make(name: str, join: tuple[str, ...]) -> AsyncPeer:
        return AsyncPeer(
            _config(name, "127.0.0.1:0", join),
            network=TcpNetwork(),
            security=lambda identity: PlainSecurity(identity, b"parity!!"),
        )

    told: Awaitable[list[tuple[str, ...]]] = story(make)
    return asyncio.run(told)  # type: ignore[arg-type]


@pytest.mark.real
def test_simulated_and_real_sockets_show_the_same_events() -> None:
    simulated = _simulated()
    assert ("member", "b", "alive") in simulated
    assert ("member", "b", "left") in simulated
    assert simulated == _real()
