"""The preamble on a real transport: read 32 bytes, and not one more, before anybody else may have it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from ictp2p.edge.network import Network, ended
from ictp2p.edge.preamble import PREAMBLE_SIZE, Kind, Preamble, check, is_preamble
from ictp2p.errors import ConnectionLost, IctError, RemoteProtocolError, Translated, Unreachable
from ictp2p.types import Address, shown_address


class Opening(asyncio.Protocol):
    """Owns a transport until the other side's preamble is there; then reading is paused and `heard` is done.

    Whoever takes the transport over sets its own protocol and resumes reading. Nothing can have been lost: after
    the two preambles it is the dialer who speaks, and not before it has read the answer.
    """

    def __init__(self, made: Callable[[Opening], None]) -> None:
        """Call `made` once there is a transport."""
        self.heard: asyncio.Future[Preamble] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self.remote: Address
        """The other end, as the connection showed it when it was made: uvloop raises if it is asked after the end."""
        self._made = made
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses
        self.remote = shown_address(transport.get_extra_info("peername"))
        self._made(self)

    def data_received(self, data: bytes) -> None:
        """Collect the preamble; anything that cannot be one ends the wait at once."""
        if self.heard.done():
            return
        self._buffer += data
        if len(self._buffer) > PREAMBLE_SIZE or not is_preamble(self._buffer):
            self._fail(RemoteProtocolError(f"expected an ictp2p preamble, got {bytes(self._buffer[:40])!r}"))
        elif len(self._buffer) == PREAMBLE_SIZE:
            self.transport.pause_reading()
            self.heard.set_result(Preamble.decode(self._buffer))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait."""
        self._fail(ended(exc, "before its preamble"))

    def _fail(self, error: IctError) -> None:
        if not self.heard.done():
            self.heard.set_exception(error)
            self.heard.exception()  # whoever waited may have given up: that is no news to the event loop


async def open_transport(
    network: Network, address: Address, mine: Preamble, timeout: float
) -> tuple[asyncio.Transport, Preamble]:
    """Dial, exchange preambles, and return a paused transport with what the acceptor said.

    Raises:
        Refused, Unreachable: nobody answered in time.
        ConnectionLost: it was closed before the answer.
        RemoteProtocolError: whoever answered does not speak ictp2p.
        VersionMismatch, HandshakeFailed: the acceptor, or this side, refused the other.
    """
    opening: Opening | None = None
    with attempt(address, timeout):
        try:
            async with asyncio.timeout(timeout):
                begun, small = lambda: Opening(lambda made: _speak(made, mine)), mine.kind is Kind.CONTROL
                _, opening = await network.connect(begun, address, timeout, small=small)
                theirs = await opening.heard
                check(mine, theirs, theirs.verdict)
                if opening.transport.is_closing():
                    raise ConnectionLost("the connection ended after the preambles")
        except BaseException:
            if opening is not None:
                opening.transport.abort()
            opening = None  # what it heard may be this error, which knows this frame
            raise
    return opening.transport, theirs


async def open_bulk(network: Network, address: Address, fingerprint: bytes, *, timeout: float) -> asyncio.Transport:
    """Dial a bulk connection. The caller sets its own protocol on the paused transport, then resumes reading.

    Raises:
        NetworkError, ProtocolError: as `open_transport`.
    """
    transport, _ = await open_transport(network, address, Preamble(fingerprint, Kind.BULK), timeout)
    return transport


def attempt(address: Address, timeout: float) -> Translated[Exception]:
    """Name the address in whatever ends an attempt to reach it."""

    def named(error: Exception) -> None:
        if isinstance(error, TimeoutError):
            raise Unreachable(f"{address} did not finish the handshake within {timeout:g} s") from error
        if isinstance(error, IctError) and str(address) not in str(error):
            raise type(error)(f"{address}: {error}") from error

    return Translated(Exception, named)


def _speak(opening: Opening, mine: Preamble) -> None:
    opening.transport.write(mine.encode())
