import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ictp2p.edge.control import ControlConnection, Limits, open_control
from ictp2p.edge.credential import Mesh
from ictp2p.edge.network import TcpNetwork
from ictp2p.edge.opening import Opening, open_bulk
from ictp2p.edge.preamble import PREAMBLE_SIZE, Kind, Preamble, Verdict
from ictp2p.edge.reception import Reception, serve
from ictp2p.edge.security import PlainSecurity, Security, TlsSecurity
from ictp2p.errors import (
    AddressInUse,
    ConnectionLost,
    HandshakeFailed,
    IctError,
    RemoteProtocolError,
    TurnedAway,
    VersionMismatch,
)
from ictp2p.identity import Identity
from ictp2p.types import Address
from ictp2p.wire import HEADER_SIZE, WIRE_VERSION, FrameKind, frame
from tests.bulk.conftest import MemoryTransport

NETWORK = TcpNetwork()
LOOPBACK = Address("127.0.0.1", 0)
MESH = Mesh.from_token("the mesh of this test")
ALICE, BOB = TlsSecurity(Identity.generate(), MESH), TlsSecurity(Identity.generate(), MESH)
CONTROL = Preamble(MESH.fingerprint).encode()
SHORT = Limits(handshake=0.3)


class Hall:
    """A reception, and what it told."""

    def __init__(self) -> None:
        self.reception: Reception
        self.admitted: asyncio.Queue[ControlConnection] = asyncio.Queue()
        self.refusals: asyncio.Queue[tuple[Address, IctError]] = asyncio.Queue()

    async def refusal(self) -> IctError:
        _, error = await self.refusals.get()
        return error


@asynccontextmanager
async def hall(security: Security = BOB, limits: Limits | None = None, **more: object) -> AsyncIterator[Hall]:
    it = Hall()
    it.reception = await serve(
        NETWORK,
        LOOPBACK,
        security,
        on_control=it.admitted.put_nowait,
        on_refused=lambda address, error: it.refusals.put_nowait((address, error)),
        limits=limits,
        **more,
    )
    try:
        yield it
    finally:
        await it.reception.close()
        assert it.reception.half_open == 0


@asynccontextmanager
async def knocking(
    it: Hall, source: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*it.reception.address, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\0", b"I", b"ICTP" + bytes(29)]
)
def test_garbage_on_the_port_is_refused_named_and_costs_nothing_more(run, garbage: bytes):
    async def story() -> None:
        async with hall() as it, knocking(it) as (reader, writer):
            shown = Address(*writer.get_extra_info("sockname"))
            writer.write(garbage)
            if len(garbage) < 4:
                writer.write_eof()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(PREAMBLE_SIZE + 1)
            address, error = await it.refusals.get()
            assert address == shown
            assert isinstance(error, RemoteProtocolError | ConnectionLost | VersionMismatch)

    run(story())


@pytest.mark.parametrize(
    ("preamble", "verdict", "error"),
    [
        (
            Preamble(MESH.fingerprint, oldest=WIRE_VERSION + 1, newest=WIRE_VERSION + 3),
            Verdict.OTHER_VERSION,
            VersionMismatch,
        ),
        (Preamble(b"mesh-two"), Verdict.OTHER_MESH, TurnedAway),
        (Preamble(MESH.fingerprint, kind=99), Verdict.UNKNOWN_KIND, HandshakeFailed),
        (Preamble(MESH.fingerprint, kind=Kind.BULK), Verdict.UNKNOWN_KIND, HandshakeFailed),
    ],
)
def test_each_wrong_preamble_is_answered_with_ours_and_the_verdict(
    run, preamble: Preamble, verdict: Verdict, error: type[IctError]
):
    async def story() -> None:
        async with hall() as it, knocking(it) as (reader, writer):
            writer.write(preamble.encode())
            answer = Preamble.decode(await reader.readexactly(PREAMBLE_SIZE))
            assert answer == Preamble(MESH.fingerprint, preamble.kind, verdict)
            assert await reader.read() == b""
            assert type(await it.refusal()) is error

    run(story())


@pytest.mark.parametrize("stage", ["before the preamble", "in the preamble", "before tls", "in tls", "before hello"])
@pytest.mark.parametrize("trickles", [False, True], ids=["silent", "trickling"])
def test_nobody_holds_a_handshake_longer_than_its_deadline(run, stage: str, trickles: bool):
    """Silence, and slowloris: a byte now and then, all of them good ones."""

    async def story() -> None:
        good = {
            "before the preamble": CONTROL,
            "in the preamble": CONTROL[7:],
            "before tls": b"\x16\x03\x01\x01\x00" + bytes(256),
            "in tls": bytes(256),
            "before hello": frame(FrameKind.HELLO, bytes(48)),
        }[stage]
        sent = 0
        async with hall(limits=SHORT) as it, knocking(it) as (reader, writer):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # who is too slow for the stage is out too
                if stage == "in the preamble":
                    writer.write(CONTROL[:7])
                elif stage != "before the preamble":
                    writer.write(CONTROL)
                    await reader.readexactly(PREAMBLE_SIZE)
                if stage == "in tls":
                    writer.write(b"\x16\x03\x01\x01\x00")
                elif stage == "before hello":
                    await writer.start_tls(ALICE._client)
            refusal = asyncio.ensure_future(it.refusals.get())
            for byte in good if trickles else ():
                done, _ = await asyncio.wait([refusal], timeout=0.05)
                if done or writer.is_closing():
                    break
                writer.write(bytes([byte]))
                sent += 1
            _, error = await refusal
            assert type(error) is HandshakeFailed
            assert sent < len(good), "each byte that came gave it more time"
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)

    run(story())


def test_too_many_half_open_connections_turn_newcomers_away_and_harm_nobody_inside(run):
    async def story() -> None:
        async with hall(limits=Limits(half_open=2)) as it, knocking(it), knocking(it):
            async with knocking(it) as (reader, writer):
                writer.write(CONTROL)
                answer = Preamble.decode(await reader.readexactly(PREAMBLE_SIZE))
                assert answer.verdict == Verdict.BUSY
                assert "2 connections are in the handshake" in str(await it.refusal())
            with pytest.raises(HandshakeFailed, match="too many connections"):
                await open_control(NETWORK, it.reception.address, ALICE)
            assert it.reception.half_open == 2

    run(story())


def test_a_flood_from_one_network_keeps_no_other_out(run):
    async def story() -> None:
        async with hall(limits=Limits(half_open=2)) as it, contextlib.AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(knocking(it, "127.0.0.2"))
            dialed = await open_control(NETWORK, it.reception.address, ALICE)
            admitted = await it.admitted.get()
            address, error = await it.refusals.get()
            assert address.host == "127.0.0.2"
            assert "made room for others: 2 connections" in str(error)
            assert it.reception.half_open == 1
            for _ in range(2):
                await stack.enter_async_context(knocking(it, "127.0.0.2"))
            assert "2 connections are in the handshake" in str(await it.refusal())
            assert admitted.is_open, "who has come in is in"
            dialed.abort()
            admitted.abort()

    run(story())


def test_who_has_just_come_in_is_not_made_to_go(run, monkeypatch):
    """Its task has ended, and whoever is told of that has not run yet."""
    ends: dict[Opening, asyncio.Future[None]] = {}

    async def shake_hands(self: Reception, opening: Opening) -> None:
        await ends[opening]

    def knocks(reception: Reception, host: str) -> Opening:
        opening = reception.knock()
        assert isinstance(opening, Opening)
        ends[opening] = asyncio.get_running_loop().create_future()
        transport = MemoryTransport()
        transport.other = MemoryTransport()
        transport._extra["peername"] = (host, 5)
        opening.connection_made(transport)
        return opening

    async def story() -> None:
        reception = Reception(BOB, lambda _: None, None, None, Limits(half_open=2))
        first, second = knocks(reception, "192.0.2.1"), knocks(reception, "192.0.2.1")
        await asyncio.sleep(0)
        ends[first].set_result(None)
        asyncio.get_running_loop().call_soon(knocks, reception, "192.0.2.2")
        await asyncio.sleep(0)
        assert not first.transport.is_closing()
        assert not second.transport.is_closing(), "there was room"
        for end in ends.values():
            end.cancel()

    monkeypatch.setattr(Reception, "_shake_hands", shake_hands)
    run(story())


def test_a_place_is_free_again_once_somebody_left_or_came_in(run):
    async def story() -> None:
        async with hall(limits=Limits(half_open=1)) as it:
            for _ in range(3):
                async with knocking(it) as (_, writer):
                    writer.write(b"garbage")
                    await it.refusal()
                dialed = await open_control(NETWORK, it.reception.address, ALICE)
                admitted = await it.admitted.get()
                assert it.reception.half_open == 0
                dialed.abort()
                admitted.abort()

    run(story())


def test_closing_drops_whoever_is_in_the_handshake_and_frees_the_port(run):
    async def story() -> None:
        async with hall() as it, knocking(it) as (reader, writer):
            writer.write(CONTROL)
            await reader.readexactly(PREAMBLE_SIZE)
            with pytest.raises(AddressInUse):
                await serve(NETWORK, it.reception.address, BOB, on_control=it.admitted.put_nowait)
            await it.reception.close()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            again = await serve(NETWORK, it.reception.address, BOB, on_control=it.admitted.put_nowait)
            assert repr(again) == f"<Reception {it.reception.address} half_open=0>"
            await again.close()

    run(story())


def test_a_stranger_without_the_token_gets_no_hello(run):
    async def story() -> None:
        stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        async with hall() as it, knocking(it) as (reader, writer):
            writer.write(CONTROL)
            await reader.readexactly(PREAMBLE_SIZE)
            await writer.start_tls(stranger)  # succeeds here: the acceptor has not judged yet
            writer.write(frame(FrameKind.HELLO, bytes(48)))
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await reader.readexactly(HEADER_SIZE)
            assert type(await it.refusal()) is HandshakeFailed
            assert it.admitted.empty()

    run(story())


def test_a_bulk_connection_is_handed_over_whole_after_the_preambles(run):
    class Echo(asyncio.BufferedProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            raise AssertionError("the transport was made long ago")

        def __init__(self, transport: asyncio.Transport) -> None:
            self.transport, self.memory = transport, bytearray(1024)

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.memory

        def buffer_updated(self, nbytes: int) -> None:
            self.transport.write(bytes(self.memory[:nbytes]))

    class Collect(asyncio.Protocol):
        def __init__(self, wanted: int) -> None:
            self.data, self.wanted = b"", wanted
            self.complete = asyncio.get_running_loop().create_future()

        def data_received(self, data: bytes) -> None:
            self.data += data
            if len(self.data) >= self.wanted:
                self.complete.set_result(self.data)

    async def story() -> None:
        handed: asyncio.Queue[Preamble] = asyncio.Queue()

        def on_bulk(transport: asyncio.Transport, preamble: Preamble) -> None:
            transport.set_protocol(Echo(transport))
            handed.put_nowait(preamble)

        async with hall(on_bulk=on_bulk) as it:
            transport = await open_bulk(NETWORK, it.reception.address, MESH.fingerprint, timeout=5)
            collect = Collect(100_000)
            transport.set_protocol(collect)
            transport.write(bytes(100_000))  # right behind the preamble
            transport.resume_reading()
            assert await collect.complete == bytes(100_000)
            preamble = await handed.get()
            assert preamble.kind == Kind.BULK
            assert it.reception.half_open == 0
            transport.abort()

    run(story())


def test_bulk_that_is_not_wanted_is_refused_on_both_sides(run):
    async def story() -> None:
        async with hall() as it:
            with pytest.raises(HandshakeFailed, match="kind 2"):
                await open_bulk(NETWORK, it.reception.address, MESH.fingerprint, timeout=5)
            assert type(await it.refusal()) is HandshakeFailed

    run(story())


def test_many_peers_can_join_at_once(run):
    async def story() -> None:
        async with hall() as it:
            peers = [TlsSecurity(Identity.generate(), MESH) for _ in range(20)]
            dialed = await asyncio.gather(*(open_control(NETWORK, it.reception.address, peer) for peer in peers))
            admitted = [await it.admitted.get() for _ in peers]
            assert {c.peer_id for c in admitted} == {peer.peer_id for peer in peers}
            assert it.refusals.empty()
            for connection in (*dialed, *admitted):
                connection.abort()

    run(story())


def test_without_anybody_to_tell_refusals_are_still_refusals(run):
    async def story() -> None:
        reception = await serve(NETWORK, LOOPBACK, BOB, on_control=lambda connection: connection.abort())
        reader, writer = await asyncio.open_connection(*reception.address)
        writer.write(b"garbage")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.transport.abort()
        await reception.close()

    run(story())


def test_a_simulated_peer_comes_in_by_its_word(run):
    async def story() -> None:
        alice, bob = (PlainSecurity(Identity.generate(), MESH.fingerprint) for _ in range(2))
        async with hall(bob) as it:
            dialed = await open_control(NETWORK, it.reception.address, alice)
            admitted = await it.admitted.get()
            assert (dialed.peer_id, admitted.peer_id) == (bob.peer_id, alice.peer_id)
            dialed.abort()
            admitted.abort()

    run(story())


@pytest.mark.parametrize("turns", range(12))
def test_who_is_gone_before_it_is_looked_at_can_make_room_at_any_moment(run, turns: int):
    """Regression: uvloop raised when it was asked, after the end, who had been there, and a place was lost for good."""

    async def story() -> None:
        async with hall(limits=Limits(half_open=1)) as it:
            gone = socket.create_connection(it.reception.address)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()
            for _ in range(turns):
                await asyncio.sleep(0)
            for opening in tuple(it.reception._half_open):
                it.reception._displace(opening)
            await it.refusal()  # for it was displaced, or came after that, and had gone
            if ending := tuple(it.reception._half_open.values()):
                await asyncio.wait(ending)
                await asyncio.sleep(0)
            assert (it.reception.half_open, len(it.reception._places)) == (0, 0)

    run(story())
