"""A control connection: frames between two peers who know who the other is.

After the preambles (`preamble`) and TLS (`security`) each side says HELLO, the dialer first, and the acceptor's
HELLO is what ends the handshake, not TLS: in TLS 1.3 a dialer is done before the acceptor has looked at the
dialer's certificate (RFC 8446, section 2, figure 1), and would take a connection for open that is about to be
refused. It costs nothing: the dialer's HELLO travels with the end of its handshake. A dialer that reached somebody
other than it expected never says HELLO, so the acceptor does not count it either.

HELLO names the peer and the process. A peer that restarts has its id of before and has forgotten all that it did not
write down, while a connection to its former life may look open for long (RFC 9293, section 3.5.1, calls it half-open):
whoever meets the new process must be able to tell (`driver`).

Three ways to hurt a peer from an open connection are bounded here. A frame's length is judged before it is kept
(`wire`). A peer that does not read fills at most `buffered` bytes of our memory: beyond that frames are dropped,
which every protocol above survives, and if it does not catch up within `drain` seconds the connection is. A peer
that does not take its leave when the connection is closed is cut off after `close` seconds.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass

from ictp2p.edge.network import Network, ended
from ictp2p.edge.opening import attempt, open_transport
from ictp2p.edge.preamble import Kind, Preamble
from ictp2p.edge.security import Security
from ictp2p.errors import ConnectionLost, HandshakeFailed, IctError, RemoteProtocolError
from ictp2p.types import Address, PeerId, shown_address
from ictp2p.wire import HEADER_SIZE, FrameKind, FrameReader, frame

OnFrame = Callable[[bytes], None]
OnClosed = Callable[[IctError | None], None]

_HELLO = struct.Struct("!16s32s")
"""Who speaks: the peer's id, and the key-agreement key of its process."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a control connection may cost, and how long each wait on it may take."""

    handshake: float = 5.0
    """Seconds from an accepted connection to the peer's HELLO, however it trickles in."""
    half_open: int = 256
    """Connections that may be in the handshake at once; later ones are told that we are busy."""
    buffered: int = 8 << 20
    """Bytes that may wait for a peer to read them; frames beyond are dropped."""
    drain: float = 20.0
    """Seconds in which a peer that reached `buffered` must have read half of it."""
    close: float = 2.0
    """Seconds that an orderly close may take."""


class SelfConnection(HandshakeFailed):
    """The peer dialed itself: one of the addresses it was given is its own."""


class ControlConnection(asyncio.Protocol):
    """An established connection to one peer. Made by `open_control` and `reception.serve`; then `start` it."""

    def __init__(self, security: Security, limits: Limits, *, dialed: bool) -> None:
        self.dialed = dialed
        """Whether this side dialed."""
        self.peer_id: PeerId
        """Who is at the other end."""
        self.process: bytes
        """Which of its processes."""
        self.address: Address
        """The other end, as the connection shows it (its listening port is another one if it dialed us)."""
        self.local: Address
        """This end, as the connection shows it: what the other side can see of our host, NAT apart."""
        self.dropped = 0
        """Frames not sent because the peer did not read."""
        self._security = security
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._hello: asyncio.Future[tuple[PeerId, bytes]] = self._loop.create_future()
        self._early: list[bytes] = []
        self._early_size = 0
        self._on_frame: OnFrame | None = None
        self._on_closed: OnClosed | None = None
        self._reason: IctError | None = None
        self._closing = False
        self._lost = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None

    def start(self, on_frame: OnFrame, on_closed: OnClosed) -> None:
        """Begin to deliver.

        Args:
            on_frame: given each message body, in order; if it raises a `RemoteProtocolError` the connection is
                dropped.
            on_closed: given why the connection ended, once, after the last frame: a `ConnectionLost` (it ended,
                was reset, or did not drain), a `RemoteProtocolError`, or None if this side closed it.
        """
        assert hasattr(self, "peer_id"), "start() is for established connections"
        assert self._on_frame is None, "start() is called once"
        self._on_frame, self._on_closed = on_frame, on_closed
        early, self._early = self._early, []
        for body in early:
            try:
                self._deliver(body)
            except RemoteProtocolError as error:
                self._fail(error)
            except BaseException:  # else nobody would read, or end, what looks open
                self.abort()
                raise
        if self._lost.is_set():
            self._on_frame = self._on_closed = None
            self._loop.call_soon(on_closed, self._reason)
        elif self._transport is not None:
            self._transport.resume_reading()

    def send(self, body: bytes) -> bool:
        """Send one message body, best effort: False if the connection is closed or its buffer is full.

        Raises:
            LocalProtocolError: the body is larger than any peer would take.
        """
        if self._transport is None or self._closing or self._transport.is_closing():
            return False
        if self._transport.get_write_buffer_size() > self._limits.buffered:
            self.dropped += 1
            return False
        self._transport.write(frame(FrameKind.MESSAGE, body))
        return True

    def close(self) -> None:
        """Close once what was sent has left, but within the limit; `on_closed(None)` follows."""
        if self._transport is None or self._closing or self._lost.is_set():
            return
        self._closing = True
        self._transport.close()
        self._arm(self._limits.close, self._transport.abort)

    def abort(self) -> None:
        """Close now; `on_closed(None)` follows, unless a reason is already known."""
        if self._transport is not None and not self._lost.is_set():
            self._closing = True
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is gone. After `close` that takes at most `Limits.close` seconds.

        An event loop that ends earlier leaves the socket open.
        """
        await self._lost.wait()

    @property
    def is_open(self) -> bool:
        """Whether `send` can still succeed."""
        return self._transport is not None and not self._closing and not self._transport.is_closing()

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<ControlConnection {getattr(self, 'peer_id', '?')} {getattr(self, 'address', '?')} {state}>"

    # The handshake, called by open_control and reception.

    async def establish(self, transport: asyncio.Transport, expected: PeerId | None, timeout: float) -> None:
        """Secure a paused transport, whose preambles have passed, and exchange HELLOs; the caller aborts on failure.

        Raises:
            HandshakeFailed: the other side cannot be let in, is not `expected`, or did not let us in.
            RemoteProtocolError: it said something other than HELLO.
        """
        if transport.is_closing():
            raise ConnectionLost("the connection ended after the preambles")
        self._transport = transport
        self.address = shown_address(transport.get_extra_info("peername"))
        self.local = shown_address(transport.get_extra_info("sockname"))
        self._transport = secured = await self._security.secure(
            transport, self, server_side=not self.dialed, timeout=timeout
        )
        secured.set_write_buffer_limits(high=self._limits.buffered, low=self._limits.buffered // 2)
        proven = self._security.proven(secured)
        if self.dialed:
            if proven is not None:
                self._check(proven, expected)
            self._say_hello()
        claimed, process = await self._hello
        secured.pause_reading()  # until start()
        if proven is not None and claimed != proven:
            raise HandshakeFailed(f"peer {proven} says that it is {claimed}")
        self._check(claimed, expected)
        self.peer_id, self.process = claimed, process
        if not self.dialed:
            self._say_hello()

    def _check(self, peer: PeerId, expected: PeerId | None) -> None:
        if expected is not None and peer != expected:
            raise HandshakeFailed(f"expected peer {expected}, found {peer}")
        if peer == self._security.peer_id:
            raise SelfConnection(f"peer {peer} is this peer itself")

    def _say_hello(self) -> None:
        if self._transport is not None:  # else it has just gone, of which `start` will tell
            self._transport.write(frame(FrameKind.HELLO, hello(self._security)))

    # What the transport calls.

    def data_received(self, data: bytes) -> None:
        """Cut frames, and pass them on."""
        try:
            self._take(data)
        except RemoteProtocolError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits, once."""
        self._lost.set()
        self._disarm()
        if self._reason is None and not self._closing:
            self._reason = ended(exc, "control connection")
        if not self._hello.done():
            # Whoever does not like our certificate ends the connection, and the alert may not get out.
            what = f"the other side refused us, or died, during the handshake: {self._reason or 'closed'}"
            reason = self._reason if isinstance(self._reason, RemoteProtocolError) else HandshakeFailed(what)
            self._hello.set_exception(reason)
            self._hello.exception()  # whoever waited may have given up: that is no news to the event loop
        # Forget who knows us, and TLS, which holds a quarter of a megabyte: they would wait for the garbage collector.
        on_closed, self._on_frame, self._on_closed, self._transport = self._on_closed, None, None, None
        if on_closed is not None:
            on_closed(self._reason)

    def pause_writing(self) -> None:
        """Give the peer until the deadline to read."""
        if not self._closing:
            self._arm(self._limits.drain, self._not_drained)

    def resume_writing(self) -> None:
        """Note that it did."""
        if not self._closing:
            self._disarm()

    def _take(self, data: bytes) -> None:
        for kind, body in self._reader.feed(data):
            if kind is FrameKind.HELLO:
                self._take_hello(body)
            elif not self._hello.done():
                raise RemoteProtocolError("a message came before HELLO")
            else:
                self._deliver(body)

    def _take_hello(self, body: bytes) -> None:
        if self._hello.done() or len(body) != _HELLO.size:
            raise RemoteProtocolError(f"unexpected HELLO of {len(body)} bytes")
        peer, process = _HELLO.unpack(body)
        self._hello.set_result((PeerId(peer.hex()), process))

    def _deliver(self, body: bytes) -> None:
        if self._closing or self._reason is not None:
            return
        if self._on_frame is not None:
            self._on_frame(body)
            return
        self._early.append(body)  # came with HELLO, or before reading could be paused
        self._early_size += HEADER_SIZE + len(body)
        if self._early_size > self._limits.buffered:
            raise RemoteProtocolError("too much was sent before the handshake ended")

    def _not_drained(self) -> None:
        self._fail(ConnectionLost(f"the peer did not read for {self._limits.drain:g} s"))

    def _fail(self, reason: IctError) -> None:
        if self._reason is None:
            self._reason = reason
        if not self._hello.done():
            self._hello.set_exception(reason)
            self._hello.exception()
        if self._transport is not None:
            self._transport.abort()

    def _arm(self, seconds: float, action: Callable[[], None]) -> None:
        self._disarm()
        self._deadline = self._loop.call_later(seconds, action)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def hello(speaker: Security) -> bytes:
    """What a process says of itself."""
    return _HELLO.pack(bytes.fromhex(speaker.peer_id), speaker.process)


async def open_control(
    network: Network,
    address: Address,
    security: Security,
    *,
    expected: PeerId | None = None,
    timeout: float = 5.0,
    limits: Limits | None = None,
) -> ControlConnection:
    """Dial a peer and return the established connection, or fail within `timeout` seconds.

    Args:
        network: where to dial.
        address: whom to dial.
        security: who we are.
        expected: refuse anybody but this peer.
        timeout: seconds for all of it, from the look-up of the host name to the peer's HELLO.
        limits: bounds on the connection.

    Raises:
        Refused: the host says that nobody listens there.
        Unreachable: it did not answer, or did not finish the handshake, in time.
        ConnectionLost: the connection ended before the preambles were exchanged.
        RemoteProtocolError: whoever answered does not speak ictp2p.
        VersionMismatch: no version of the wire is understood by both sides.
        HandshakeFailed: another mesh, another peer, or we were refused; `SelfConnection`: it is ourselves.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    mine = Preamble(security.fingerprint, Kind.CONTROL)
    transport, _ = await open_transport(network, address, mine, timeout)
    connection = ControlConnection(security, limits or Limits(), dialed=True)
    with attempt(address, timeout):
        try:
            async with asyncio.timeout_at(deadline):
                await connection.establish(transport, expected, timeout)
        except BaseException:
            transport.abort()
            raise
    return connection
