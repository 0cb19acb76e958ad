import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from ictp2p.control import ControlConnection, Limits, SelfConnection, open_control
from ictp2p.credential import Mesh
from ictp2p.errors import (
    ConnectionLost,
    HandshakeFailed,
    IctError,
    LocalProtocolError,
    RemoteProtocolError,
    Unreachable,
)
from ictp2p.identity import Identity
from ictp2p.network import Refused, TcpNetwork
from ictp2p.reception import Reception, serve
from ictp2p.security import PlainSecurity, Security, TlsSecurity
from ictp2p.types import Address, PeerId
from ictp2p.wire import HEADER_SIZE, MAX_CONTROL_BODY, FrameKind, frame

NETWORK = TcpNetwork()
LOOPBACK = Address("127.0.0.1", 0)
MESH = Mesh.from_token("the mesh of this test")
IDENTITIES = Identity.generate(), Identity.generate()
ALICE, BOB = (TlsSecurity(who, MESH) for who in IDENTITIES)
PLAIN_ALICE, PLAIN_BOB = (PlainSecurity(who, MESH.fingerprint) for who in IDENTITIES)


class Party:
    """One end: its connection, what it got, and why it ended."""

    def __init__(self, connection: ControlConnection) -> None:
        self.connection = connection
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: asyncio.Future[IctError | None] = asyncio.get_running_loop().create_future()

    def start(self, on_frame: Callable[[bytes], None] | None = None) -> "Party":
        self.connection.start(on_frame or self.frames.put_nowait, self.closed.set_result)
        return self


class Couple:
    """Alice dials Bob; use as an async context manager."""

    def __init__(self, alice: Security = ALICE, bob: Security = BOB, limits: Limits | None = None, **more) -> None:
        self._securities, self._limits, self._more = (alice, bob), limits, more

    async def __aenter__(self) -> tuple[Party, Party]:
        accepted: asyncio.Queue[ControlConnection] = asyncio.Queue()
        alice, bob = self._securities
        self._reception = await serve(
            NETWORK, LOOPBACK, bob, on_control=accepted.put_nowait, limits=self._limits, **self._more
        )
        dialed = await open_control(
            NETWORK, self._reception.address, alice, limits=self._limits, expected=bob.peer_id, **self._more
        )
        self._parties = Party(dialed), Party(await accepted.get())
        return self._parties

    async def __aexit__(self, *_: object) -> None:
        for party in self._parties:
            party.connection.abort()
            if party.connection._on_closed is None:
                party.start()
            await asyncio.shield(party.closed)
        await self._reception.close()


def test_each_side_knows_the_other_and_where_it_is(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            assert (alice.connection.peer_id, bob.connection.peer_id) == (BOB.peer_id, ALICE.peer_id)
            assert (alice.connection.process, bob.connection.process) == (BOB.process, ALICE.process)
            assert (alice.connection.dialed, bob.connection.dialed) == (True, False)
            assert alice.connection.address == bob.connection.local
            assert alice.connection.local == bob.connection.address
            assert repr(alice.connection) == f"<ControlConnection {BOB.peer_id} {alice.connection.address} open>"
            for party in (alice, bob):
                assert party.connection._transport.get_extra_info("ssl_object").version() == "TLSv1.3"

    run(story())


@pytest.mark.parametrize(("a", "b"), [(ALICE, BOB), (PLAIN_ALICE, PLAIN_BOB)], ids=["tls", "plain"])
def test_frames_of_all_sizes_arrive_in_order_both_ways(run, a: Security, b: Security):
    async def story() -> None:
        sizes = [0, 1, 7, 8, 16_384, 65_536, MAX_CONTROL_BODY, 3]
        sent = [bytes([number]) * size for number, size in enumerate(sizes)]
        async with Couple(a, b) as (alice, bob):
            alice.start(), bob.start()
            for sender, receiver in ((alice, bob), (bob, alice)):
                assert all(sender.connection.send(body) for body in sent)
                assert [await receiver.frames.get() for _ in sent] == sent

    run(story())


def test_what_comes_before_start_waits_for_it(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            bob.start()
            bob.connection.send(b"one")
            bob.connection.send(b"two")
            alice.connection.send(b"go")
            assert await bob.frames.get() == b"go"
            alice.start()
            assert [await alice.frames.get(), await alice.frames.get()] == [b"one", b"two"]

    run(story())


def test_an_end_that_came_before_start_is_told_after_it(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            bob.start()
            alice.connection.send(b"last words")
            alice.connection.close()
            assert await bob.frames.get() == b"last words"
            bob.connection.close()
            await bob.closed
            alice.start()
            assert await alice.closed is None

    run(story())


def test_an_orderly_close_delivers_what_was_sent_and_then_says_so(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            alice.start(), bob.start()
            for number in range(50):
                alice.connection.send(bytes([number]) * 10_000)
            alice.connection.close()
            alice.connection.close()
            assert not alice.connection.send(b"too late")
            assert not alice.connection.is_open
            assert [(await bob.frames.get())[0] for _ in range(50)] == list(range(50))
            assert isinstance(await bob.closed, ConnectionLost)
            assert await alice.closed is None
            assert "closed>" in repr(alice.connection)

    run(story())


def test_an_event_loop_may_end_as_soon_as_its_connections_are_closed(run):
    async def story() -> None:
        accepted: asyncio.Queue[ControlConnection] = asyncio.Queue()
        reception = await serve(NETWORK, LOOPBACK, BOB, on_control=accepted.put_nowait)
        both = [await open_control(NETWORK, reception.address, ALICE), await accepted.get()]
        for connection in both:
            Party(connection).start()
            connection.close()
        await reception.close()
        for connection in both:
            await connection.wait_closed()

    run(story())


def test_a_peer_that_vanishes_is_a_lost_connection_at_once(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            alice.start(), bob.start()
            alice.connection.abort()
            assert isinstance(await bob.closed, ConnectionLost)
            assert not bob.connection.send(b"into the void")

    run(story())


def test_a_reset_is_a_lost_connection(run):
    async def story() -> None:
        async with Couple(PLAIN_ALICE, PLAIN_BOB) as (alice, bob):
            alice.start(), bob.start()
            sock = alice.connection._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            alice.connection.abort()
            reason = await bob.closed
            assert isinstance(reason, ConnectionLost)
            assert "reset" in str(reason)

    run(story())


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"\x1c\x7b\x01\x01\xff\xff\xff\xff", "over the limit"),
        (b"GET / HTTP/1.1\r\n", "expected a frame"),
        (frame(FrameKind.HELLO, bytes(48)), "unexpected HELLO"),
    ],
    ids=["oversize", "garbage", "second hello"],
)
def test_a_peer_that_breaks_the_protocol_is_dropped_with_the_reason(run, bad: bytes, words: str):
    async def story() -> None:
        async with Couple() as (alice, bob):
            alice.start(), bob.start()
            alice.connection._transport.write(frame(FrameKind.MESSAGE, b"still good"))
            alice.connection._transport.write(bad)
            reason = await bob.closed
            assert isinstance(reason, RemoteProtocolError)
            assert words in str(reason)
            assert isinstance(await alice.closed, ConnectionLost)

    run(story())


def test_a_frame_that_its_receiver_cannot_accept_drops_the_connection_and_nothing_follows(run):
    async def story() -> None:
        seen: list[bytes] = []

        def picky(body: bytes) -> None:
            seen.append(body)
            if body == b"forged":
                raise RemoteProtocolError("forged record")

        async with Couple() as (alice, bob):
            alice.start(), bob.start(picky)
            alice.connection._transport.write(
                b"".join(frame(FrameKind.MESSAGE, body) for body in (b"good", b"forged", b"after"))
            )
            reason = await bob.closed
            assert (type(reason), str(reason)) == (RemoteProtocolError, "forged record")
            assert seen == [b"good", b"forged"]

    run(story())


@pytest.mark.parametrize("early", [False, True], ids=["live", "early"])
def test_nothing_is_delivered_after_the_receiver_closed(run, early: bool):
    async def story() -> None:
        seen: list[bytes] = []

        def enough(body: bytes) -> None:
            seen.append(body)
            bob.connection.abort()

        async with Couple() as (alice, bob):
            alice.start()
            burst = b"".join(frame(FrameKind.MESSAGE, body) for body in (b"one", b"two", b"three"))
            if early:
                bob.connection.data_received(burst)
            bob.start(enough)
            if not early:
                alice.connection._transport.write(burst)
            assert await bob.closed is None
            assert seen == [b"one"]

    run(story())


def test_a_message_too_large_is_our_own_error_and_costs_the_connection_nothing(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            alice.start(), bob.start()
            with pytest.raises(LocalProtocolError):
                alice.connection.send(bytes(MAX_CONTROL_BODY + 1))
            alice.connection.send(b"next")
            assert await bob.frames.get() == b"next"

    run(story())


@pytest.mark.parametrize(("a", "b"), [(ALICE, BOB), (PLAIN_ALICE, PLAIN_BOB)], ids=["tls", "plain"])
def test_a_peer_that_stops_reading_fills_a_bounded_buffer_and_is_then_dropped(run, a: Security, b: Security):
    async def story() -> None:
        limits = Limits(buffered=1 << 20, drain=30)
        async with Couple(a, b, limits) as (alice, _):
            alice.start()  # bob never starts, so he never reads
            while alice.connection.send(bytes(100_000)):
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            assert alice.connection.dropped == 1
            assert alice.connection._transport.get_write_buffer_size() < limits.buffered + 2 * 100_000
            assert alice.connection._deadline is not None
            alice.connection._limits = replace(limits, drain=0.3)
            alice.connection.pause_writing()  # its time begins again, now that everything is full
            reason = await asyncio.shield(alice.closed)
            assert isinstance(reason, ConnectionLost)
            assert "did not read for 0.3 s" in str(reason)

    run(story())


def test_a_peer_that_catches_up_is_kept(run):
    async def story() -> None:
        async with Couple(limits=Limits(buffered=1 << 20, drain=30)) as (alice, bob):
            alice.start()
            sent = 0
            while alice.connection.send(bytes(100_000)):
                sent += 1
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            assert alice.connection._deadline is not None
            bob.start()
            for _ in range(sent):
                assert len(await bob.frames.get()) == 100_000
            assert alice.connection._deadline is None
            assert alice.connection.send(b"and on")
            assert await bob.frames.get() == b"and on"

    run(story())


def test_closing_does_not_wait_for_a_peer_that_does_not_read(run):
    async def story() -> None:
        async with Couple(limits=Limits(buffered=1 << 20, drain=30, close=0.2)) as (alice, _):
            alice.start()
            while alice.connection.send(bytes(100_000)):
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            alice.connection.close()
            await alice.connection.wait_closed()
            assert alice.closed.result() is None

    run(story())


def test_when_a_byte_last_came_is_read_from_the_given_clock(run):
    async def story() -> None:
        ticks = itertools.count()
        async with Couple(clock=lambda: float(next(ticks))) as (alice, bob):
            alice.start(), bob.start()
            before = bob.connection.last_received
            alice.connection.send(b"tick")
            await bob.frames.get()
            assert bob.connection.last_received > before

    run(story())


async def refused_dial(
    dialer: Security, acceptor: Security, expected: PeerId | None = None
) -> tuple[BaseException, IctError]:
    """What both sides are told when a dial fails."""
    told: asyncio.Queue[IctError] = asyncio.Queue()
    reception: Reception = await serve(
        NETWORK,
        LOOPBACK,
        acceptor,
        on_control=lambda connection: pytest.fail(f"let in {connection}"),
        on_refused=lambda _, error: told.put_nowait(error),
    )
    try:
        with pytest.raises(IctError) as caught:
            await open_control(NETWORK, reception.address, dialer, expected=expected)
        return caught.value, await told.get()
    finally:
        await reception.close()


def test_a_wrong_token_is_told_to_both_sides_before_tls(run):
    async def story() -> None:
        stranger = TlsSecurity(Identity.generate(), Mesh.from_token("the mesh of another test"))
        for dialer, acceptor in ((stranger, BOB), (BOB, stranger)):
            ours, theirs = await refused_dial(dialer, acceptor)
            assert type(ours) is type(theirs) is HandshakeFailed
            assert "join tokens differ" in str(ours)
            assert "join tokens differ" in str(theirs)

    run(story())


def test_a_stranger_who_knows_the_fingerprint_is_still_refused_and_both_sides_are_told(run):
    async def story() -> None:
        stranger = TlsSecurity(Identity.generate(), Mesh.from_token("the mesh of another test"))
        stranger.fingerprint = MESH.fingerprint
        stranger._client.verify_mode = 0  # it would let anybody in
        for dialer, acceptor in ((stranger, BOB), (BOB, stranger)):
            ours, theirs = await refused_dial(dialer, acceptor)
            assert type(ours) is type(theirs) is HandshakeFailed

    run(story())


def test_a_peer_other_than_the_expected_one_is_refused_and_both_sides_are_told(run):
    async def story() -> None:
        ours, theirs = await refused_dial(ALICE, BOB, expected=PeerId("0" * 32))
        assert f"expected peer {'0' * 32}, found {BOB.peer_id}" in str(ours)
        assert type(ours) is type(theirs) is HandshakeFailed

    run(story())


def test_a_peer_that_dials_itself_is_told_so(run):
    async def story() -> None:
        ours, _ = await refused_dial(ALICE, ALICE)
        assert isinstance(ours, SelfConnection)

    run(story())


def test_a_peer_cannot_claim_another_id_than_its_certificates(run):
    class Liar(TlsSecurity):
        def __init__(self, identity: Identity, mesh: Mesh) -> None:
            super().__init__(identity, mesh)
            self.peer_id = BOB.peer_id

    async def story() -> None:
        liar = Liar(Identity.generate(), MESH)
        ours, theirs = await refused_dial(liar, ALICE)
        assert type(ours) is type(theirs) is HandshakeFailed
        assert f"says that it is {BOB.peer_id}" in str(theirs)

        believed: asyncio.Queue[ControlConnection] = asyncio.Queue()
        reception = await serve(NETWORK, LOOPBACK, liar, on_control=believed.put_nowait)
        with pytest.raises(HandshakeFailed, match=f"says that it is {BOB.peer_id}"):
            await open_control(NETWORK, reception.address, ALICE)
        party = Party(await believed.get()).start()
        assert isinstance(await party.closed, ConnectionLost)
        await reception.close()

    run(story())


def test_an_unreachable_seed_is_named_within_the_deadline(run):
    async def story() -> None:
        with socket.socket() as unlistened:
            unlistened.bind(("127.0.0.1", 0))
            address = Address(*unlistened.getsockname())
            with pytest.raises(Refused, match=str(address)):
                await open_control(NETWORK, address, ALICE, timeout=30)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            address = Address(*silent.getsockname())
            with pytest.raises(Unreachable, match=rf"{address} did not .* within 0\.2 s"):
                await open_control(NETWORK, address, ALICE, timeout=0.2)

    run(story())


async def _no_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _other_frame(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(HEADER_SIZE + 16)
    writer.write(frame(FrameKind.MESSAGE, b"impatient"))
    await reader.read()


async def _short_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(HEADER_SIZE + 16)
    writer.write(frame(FrameKind.HELLO, b"short"))
    await reader.read()


@pytest.mark.parametrize(
    ("behaviour", "patience", "error", "words"),
    [
        (_no_hello, 0.5, Unreachable, "did not finish the handshake"),
        (_other_frame, 30.0, RemoteProtocolError, "before HELLO"),
        (_short_hello, 30.0, RemoteProtocolError, "HELLO of 5 bytes"),
    ],
)
def test_an_acceptor_that_does_not_say_hello_is_given_up(
    run,
    behaviour: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    patience: float,
    error: type[IctError],
    words: str,
):
    async def acceptor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(32))
        await behaviour(reader, writer)
        writer.close()

    async def story() -> None:
        listening = await asyncio.start_server(acceptor, "127.0.0.1", 0)
        address = Address(*listening.sockets[0].getsockname())
        with pytest.raises(error, match=words):
            await open_control(NETWORK, address, PLAIN_ALICE, timeout=patience)
        listening.close()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    run(story())


def test_a_flood_before_start_is_bounded(run):
    async def story() -> None:
        async with Couple(PLAIN_ALICE, PLAIN_BOB, Limits(buffered=100)) as (_, bob):
            bob.connection.data_received(frame(FrameKind.MESSAGE, bytes(90)))
            assert bob.connection.is_open
            bob.connection.data_received(frame(FrameKind.MESSAGE, bytes(90)))
            bob.start()
            assert isinstance(await bob.closed, RemoteProtocolError)

    run(story())


def test_giving_up_a_dial_leaves_nothing_open(run):
    async def story() -> None:
        in_tls: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def acceptor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(32))
            await reader.readexactly(1)  # of the ClientHello, which is never answered
            in_tls.set_result(None)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            gone.set_result(None)

        listening = await asyncio.start_server(acceptor, "127.0.0.1", 0)
        dial = asyncio.ensure_future(open_control(NETWORK, Address(*listening.sockets[0].getsockname()), ALICE))
        await in_tls
        dial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dial
        await gone
        listening.close()

    run(story())
