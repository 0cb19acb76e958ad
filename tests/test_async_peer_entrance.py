"""How a peer gets in, and what those are told that do not, or only ask."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from ictp2p.async_peer import AsyncPeer
from ictp2p.config import Timeouts
from ictp2p.edge.network import TcpNetwork
from ictp2p.edge.preamble import PREAMBLE_SIZE, Preamble, Verdict
from ictp2p.errors import (
    AddressInUse,
    ConfigError,
    HandshakeFailed,
    StatusRefused,
    Unreachable,
    VersionMismatch,
)
from ictp2p.status import fetch_status
from tests.meshed import TOKEN, all_training, config, knows, mesh, reduction, until


async def test_a_stranger_is_refused_and_both_sides_say_why() -> None:
    async with mesh("a") as (founder,):
        stranger = AsyncPeer(config("b", founder, token="not the token of this mesh"))
        with pytest.raises(HandshakeFailed, match="mesh"):
            await stranger.start()
        await until(lambda: bool(founder.refusals))
        assert "mesh" in str(founder.refusals[0])
        assert founder.refusals[0].__traceback__ is None
        assert founder.core.connected() == []


@pytest.mark.parametrize("verdict", [Verdict.BUSY, Verdict.WELCOME])
async def test_a_seed_that_is_busy_or_dies_in_the_handshake_is_asked_again(verdict: Verdict) -> None:
    knocked = asyncio.Event()

    async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs = Preamble.decode(await reader.readexactly(PREAMBLE_SIZE))
        writer.write(replace(theirs, verdict=verdict).encode())
        await reader.read(1)  # the beginning of TLS, or the end
        writer.close()
        knocked.set()

    door = await asyncio.start_server(turn_away, "127.0.0.1", 0)
    seed = "{}:{}".format(*door.sockets[0].getsockname())
    newcomer, founder = AsyncPeer(config("b", join=(seed,))), AsyncPeer(config("a", listen=seed))
    entering = asyncio.create_task(newcomer.start())
    try:
        await knocked.wait()
        door.close()
        await founder.start()
        await entering
        await until(lambda: knows(founder, {"b"}))
    finally:
        await newcomer.close()
        await founder.close()


async def test_an_unreachable_seed_is_named_in_bounded_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    waits = Timeouts(connect=1.0, stall=1.0, form=1.0, complete=5.0)
    peer = AsyncPeer(config("a", join=(f"127.0.0.1:{port}",), global_timeouts=waits))
    with pytest.raises(Unreachable, match=str(port)):
        await peer.start()


async def test_a_port_that_is_taken_is_named() -> None:
    async with mesh("a") as (founder,):
        second = AsyncPeer(config("b", founder, listen=str(founder.address)))
        with pytest.raises(AddressInUse, match=str(founder.address.port)):
            await second.start()


async def test_a_peer_of_another_version_is_told_so() -> None:
    async with mesh("a") as (founder,):
        reader, writer = await asyncio.open_connection(*founder.address)
        writer.write(b"ICTP" + bytes([200, 201, 1, 0]) + bytes(24))
        answer = await asyncio.wait_for(reader.readexactly(32), 5)
        assert answer[:4] == b"ICTP"
        writer.close()
        await until(lambda: bool(founder.refusals))
        assert isinstance(founder.refusals[0], VersionMismatch)


async def test_garbage_on_the_port_hurts_nobody() -> None:
    async with mesh("a", "b") as peers:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"ICTP", b"\xff" * 33):
            _, writer = await asyncio.open_connection(*peers[0].address)
            writer.write(garbage)
            writer.close()
        await all_training(peers)
        outcomes = await asyncio.gather(*(p.reduce(reduction(1.0)) for p in peers))
        assert outcomes[0].participants == ("a", "b")


async def test_the_status_says_who_is_there_and_costs_nobody_anything() -> None:
    async with mesh("a", "b") as peers:
        status = await fetch_status(str(peers[0].address), TOKEN, 5.0)
        assert {c["cluster"] for c in status["clusters"]} == {"a", "b"}
        assert status["peer"] == peers[0].id
        assert status["leader"] == peers[0].id
        assert status["voters"]
        with pytest.raises(HandshakeFailed):
            await fetch_status(str(peers[0].address), "not the token of this mesh", 5.0)
        with pytest.raises(ConfigError):
            await fetch_status("nowhere", TOKEN, 5.0)
        await until(lambda: len(peers[0].core.connected()) == 1)


async def test_who_asked_for_the_status_has_hung_up_when_it_has_it() -> None:
    class Watched(TcpNetwork):
        async def connect(self, factory, address, timeout, **options):  # type: ignore[no-untyped-def]
            transport, protocol = await super().connect(factory, address, timeout, **options)
            sockets.append(transport.get_extra_info("socket"))
            return transport, protocol

    sockets: list[socket.socket] = []
    async with mesh("a") as (founder,):
        await fetch_status(str(founder.address), TOKEN, 5.0, Watched())
        assert [sock.fileno() for sock in sockets] == [-1]


async def test_who_is_not_told_the_status_is_told_why() -> None:
    """Regression: of a status beyond what may wait for its reader, parts were dropped, and its observer timed out."""
    async with mesh("a") as (founder,):
        founder.status = lambda: {"peer": "x" * (9 << 20)}  # type: ignore[method-assign]
        with pytest.raises(StatusRefused, match=r"the status has 9437196 bytes, and at most 8388608 are sent"):
            await fetch_status(str(founder.address), TOKEN, 5.0)
        founder.status = lambda: {"peer": "x" * ((8 << 20) - 12)}  # type: ignore[method-assign]
        assert len((await fetch_status(str(founder.address), TOKEN, 5.0))["peer"]) == (8 << 20) - 12
