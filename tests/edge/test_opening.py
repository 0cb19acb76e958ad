import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ictp2p.edge.network import TcpNetwork
from ictp2p.edge.opening import Opening, open_bulk, open_transport
from ictp2p.edge.preamble import PREAMBLE_SIZE, Kind, Preamble, Verdict
from ictp2p.errors import (
    ConnectionLost,
    HandshakeFailed,
    IctError,
    Refused,
    RemoteProtocolError,
    TurnedAway,
    Unreachable,
    VersionMismatch,
)
from ictp2p.types import Address
from tests.garbage import uncollected

NETWORK = TcpNetwork()
MINE = Preamble(b"mesh-one")
ANSWER = MINE.encode()
TIMEOUT = 5.0

Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def dialed(server: Server, timeout: float = TIMEOUT) -> tuple[asyncio.Transport, Preamble]:
    """Dial somebody who behaves like `server`, and wait until it is done."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await server(reader, writer)
        finally:
            writer.close()
            done.set()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        return await open_transport(NETWORK, Address(*listening.sockets[0].getsockname()), MINE, timeout)
    finally:
        await done.wait()
        listening.close()


def answering(*pieces: bytes) -> Server:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(PREAMBLE_SIZE) == ANSWER
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        await reader.read()  # until the dialer goes

    return server


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(PREAMBLE_SIZE)
    await reader.read()


async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(PREAMBLE_SIZE)


@pytest.mark.parametrize(
    ("server", "error", "words"),
    [
        (answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), RemoteProtocolError, "HTTP/1.1 400"),
        (answering(b"SSH-2.0-OpenSSH_9.7\r\n"), RemoteProtocolError, "SSH-2.0"),
        (answering(b"IC", b"XX"), RemoteProtocolError, "ICXX"),
        (answering(ANSWER + b"!"), RemoteProtocolError, "expected an ictp2p preamble"),
        (answering(Preamble(b"mesh-two", verdict=Verdict.OTHER_MESH).encode()), TurnedAway, "tokens differ"),
        (answering(Preamble(b"mesh-two").encode()), TurnedAway, "tokens differ"),
        (
            answering(Preamble(b"mesh-one", verdict=Verdict.OTHER_VERSION, oldest=4, newest=6).encode()),
            VersionMismatch,
            "versions 4 to 6",
        ),
        (answering(Preamble(b"mesh-one", verdict=Verdict.BUSY).encode()), HandshakeFailed, "too many"),
        (answering(Preamble(b"mesh-one", verdict=77).encode()), HandshakeFailed, "reason 77"),
        (gone, ConnectionLost, "closed the connection"),
    ],
)
def test_whoever_answers_wrongly_is_named_with_its_address(run, server: Server, error: type[IctError], words: str):
    async def story() -> None:
        with pytest.raises(error, match=words) as caught:
            await dialed(server)
        assert type(caught.value) is error
        assert str(caught.value).startswith("127.0.0.1:")

    run(story())


def test_whoever_says_nothing_costs_no_more_than_the_deadline(run):
    async def story() -> None:
        with pytest.raises(Unreachable, match=r"did not .* within 0\.2 s"):
            await dialed(silent, 0.2)

    run(story())


def test_where_nobody_listens_the_refusal_passes_through(run):
    async def story() -> None:
        listening = await asyncio.start_server(gone, "127.0.0.1", 0)
        address = Address(*listening.sockets[0].getsockname())
        listening.close()
        await listening.wait_closed()
        with pytest.raises(Refused, match="nobody listens there"):
            await open_transport(NETWORK, address, MINE, TIMEOUT)

    run(story())


def test_giving_up_leaves_nothing_open(run):
    async def story() -> None:
        heard = asyncio.get_running_loop().create_future()
        listening = await asyncio.start_server(lambda r, w: heard.set_result((r, w)), "127.0.0.1", 0)
        address = Address(*listening.sockets[0].getsockname())
        task = asyncio.ensure_future(open_transport(NETWORK, address, MINE, TIMEOUT))
        reader, writer = await heard
        await reader.readexactly(PREAMBLE_SIZE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        listening.close()

    run(story())


@pytest.mark.parametrize("cuts", [(), (1,), (4, 31), tuple(range(1, 32))])
def test_the_answer_may_come_in_pieces_and_not_a_byte_after_it_is_read(run, cuts: tuple[int, ...]):
    class Taker(asyncio.Protocol):
        def __init__(self) -> None:
            self.lost = asyncio.get_running_loop().create_future()
            self.data = b""

        def data_received(self, data: bytes) -> None:
            self.data += data

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(None)

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        preamble = Preamble.decode(await reader.readexactly(PREAMBLE_SIZE))
        assert preamble.kind == Kind.BULK
        for start, stop in zip((0, *cuts), (*cuts, PREAMBLE_SIZE), strict=True):
            writer.write(ANSWER[start:stop])
            await writer.drain()
        assert await reader.readexactly(5) == b"first"
        writer.write(b"second")
        writer.close()

    async def story() -> None:
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        address = Address(*listening.sockets[0].getsockname())
        transport = await open_bulk(NETWORK, address, b"mesh-one", timeout=TIMEOUT)
        assert not transport.is_reading()
        taker = Taker()
        transport.set_protocol(taker)
        transport.write(b"first")
        transport.resume_reading()
        await taker.lost
        assert taker.data == b"second"
        listening.close()

    run(story())


def test_an_answer_that_is_none_leaves_nothing_to_the_garbage_collector(run):
    """Regression: what was heard knew the error, that its frames, and these what was heard."""

    async def fail() -> None:
        with pytest.raises(IctError):
            await dialed(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"))

    async def story() -> None:
        with uncollected(Opening) as left:
            await fail()
            await asyncio.sleep(0)  # the step that woke us is over
        assert left == []

    run(story())
