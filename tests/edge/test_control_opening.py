"""Opening a control connection: who is refused, what both sides are told, and what is left open."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest

from ictp2p.edge.control import ControlConnection, SelfConnection, open_control
from ictp2p.edge.credential import Mesh
from ictp2p.edge.reception import Reception, serve
from ictp2p.edge.security import Security, TlsSecurity
from ictp2p.errors import (
    ConnectionLost,
    HandshakeFailed,
    IctError,
    Refused,
    RemoteProtocolError,
    TurnedAway,
    Unreachable,
)
from ictp2p.identity import Identity
from ictp2p.types import Address, PeerId
from ictp2p.wire import HEADER_SIZE, FrameKind, frame
from tests.couple import ALICE, BOB, LOOPBACK, MESH, NETWORK, PLAIN_ALICE, Party


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
            assert type(ours) is type(theirs) is TurnedAway
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
