"""One bulk connection: a buffered asyncio protocol that receives straight into its destination.

Reading: the fixed header first, then the body. In clear the kernel writes the body where its user wants it (a tensor);
sealed, it goes to a buffer of the connection and is opened into place. Reading never pauses: every user can take what
its peer may send, which is what the collectives' freedom from deadlock rests on.

Writing: frames are *pulled*. While the transport takes more, the connection asks its users in turn for their next
frame; nothing is queued that is not ready, and at most one frame lies beyond the transport's high-water mark. Buffers
of sealed frames are reused once the transport has let go of them, told from its count of unsent bytes, because first
touch of fresh memory costs more than sealing it.

Liveness: while anybody uses the connection both ends say `ALIVE` in pauses, and a `Watch` ends the connection when no
byte moved for the stall deadline although one was due, in either direction. A peer that is slow, or itself waits for a
third one, keeps talking and is never blamed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from ictp2p.bulk import tuning
from ictp2p.bulk.frames import (
    HEADER_BYTES,
    HELLO_BYTES,
    NO_TAG,
    SEAL_BYTES,
    Header,
    Hello,
    Kind,
    Purpose,
    read_header,
    read_hello,
)
from ictp2p.bulk.pacing import Bucket, Watch
from ictp2p.bulk.seal import Seal
from ictp2p.errors import ConnectionLost, IctError, RemoteProtocolError

if TYPE_CHECKING:
    from ictp2p.types import PeerId

CLOSE_SECONDS = 1.0
AHEAD = 2 * 1024 * 1024
"""Bytes on their way that keep a link without delay busy. More only falls out of the caches before it is used."""
AHEAD_RATE = 10e9
"""Bytes on their way per second of round trip: eight hops at 10 Gbit/s, so that only short round trips are limited."""
_COALESCE_BYTES = 64 * 1024
"""Frames up to this size are joined to one write; larger ones are not copied."""


class Frame(msgspec.Struct, frozen=True):
    """What a user has to send."""

    kind: Kind
    tag: bytes
    first: int = 0
    second: int = 0
    views: Sequence[bytes | memoryview] = ()
    stable: bool = False
    """The memory keeps its content until the user is done with the connection."""


class User(Protocol):
    """What sends and receives under one tag."""

    def next_frame(self) -> Frame | None:
        """Give the next frame to send, or None until `BulkConnection.pump`."""
        ...

    def place(self, header: Header) -> memoryview | None:
        """Say where a body may land; None: in the connection's buffer."""
        ...

    def take(self, header: Header, body: memoryview) -> None:
        """Take a whole body; `body` is what `place` gave, or valid only during the call."""
        ...

    def expecting(self) -> bool:
        """Say whether the peer owes us something, so that its silence is a fault."""
        ...

    def lost(self, error: IctError) -> None:
        """The connection has gone."""
        ...


class Owner(Protocol):
    """Who holds the connections: `Bulk`."""

    def greeted(self, connection: BulkConnection, hello: Hello) -> None:
        """The other end's hello has come."""
        ...

    def confirmed(self, connection: BulkConnection) -> None:
        """The other end has shown that it holds the keys."""
        ...

    def user(self, connection: BulkConnection, header: Header) -> User | None:
        """Say who takes this frame; None: nobody, it is dropped."""
        ...

    def closed(self, connection: BulkConnection, error: IctError | None) -> None:
        """The connection has ended."""
        ...


class BulkConnection(asyncio.BufferedProtocol):
    """One connection.

    Args:
        owner: who is told what becomes of it.
        clock: monotonic seconds.
        stall: deadline in seconds, as `BulkProfile.stall`.
        high_water: bytes, as `BulkProfile.high_water`.
        hello: what we say first, if we dialed.
    """

    def __init__(
        self, owner: Owner, clock: Callable[[], float], stall: float, high_water: int, hello: Hello | None
    ) -> None:
        self.peer: PeerId | None = None
        """Who is at the other end, once it has said so; proven when the owner is told `confirmed`."""
        self.hello = hello
        self.dialed = hello is not None
        self.received = 0
        """Bytes read so far."""
        self.written = 0
        """Bytes given to the transport so far."""
        self.closed = False
        self.relayed = hello is not None and hello.purpose is Purpose.RELAY
        """Our kernel sees only the way to the relay."""
        self.transport: asyncio.Transport
        self._owner = owner
        self._clock = clock
        self._stall = stall
        self._high_water = high_water
        self._held = high_water
        self._users: list[User] = []
        self._control: deque[Frame] = deque()
        self._outbound: Seal | None = None
        self._inbound: Seal | None = None
        self._seal_bodies = True
        self._confirmed = False
        self._paused = False
        self._pumping = False
        self._drained: asyncio.Future[None] | None = None
        self._starved = True
        self._bucket = Bucket()
        self._wakeup: asyncio.TimerHandle | None = None
        self._watch: Watch | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._wakeups: tuning.Wakeups
        self._written_at_tick = 0
        self._received_at_tick = 0
        self._in_flight: deque[tuple[int, bytearray]] = deque()
        self._fixed = bytearray(max(HELLO_BYTES, HEADER_BYTES))
        self._buffer = bytearray()
        self._opened = bytearray()
        self._header: Header | None = None
        self._target: memoryview | None = None
        self._user: User | None = None
        self._view = memoryview(self._fixed)[:HELLO_BYTES]
        self._filled = 0
        self._greeted = False
        self._gone = asyncio.Event()

    # What its users do.

    def join(self, user: User) -> None:
        """Let `user` send, and watch over what it expects."""
        self._users.append(user)
        if self._ticker is None and not self.closed:
            self._watch = Watch(self._stall)
            self._written_at_tick = self.written
            self._ticker = asyncio.get_running_loop().call_later(self._watch.interval, self._tick)
        self.pump()

    def leave(self, user: User, tag: bytes) -> None:
        """Forget `user`; whatever arrives under `tag` touches its memory no more, not even a body half read."""
        if user in self._users:
            self._users.remove(user)
        if self._user is user:
            self._user = None
        if self._header is not None and self._header.tag == tag and self._target is not None:
            size = len(self._view)
            self._target = None
            self._view = self._own(size)

    def send(self, kind: Kind, tag: bytes = NO_TAG, first: int = 0, second: int = 0, body: bytes = b"") -> None:
        """Send a small frame ahead of all that users have to send."""
        self._control.append(Frame(kind, tag, first, second, (body,)))
        self.pump()

    def pace(self, rate: float | None) -> None:
        """Send at most `rate` bytes/s from now on; None: as fast as it goes."""
        self._bucket.set(rate, self._clock())
        self.pump()

    def hold(self, size: int | None) -> None:
        """Let the transport hold at most `size` bytes beyond the kernel's own buffer; None: as the profile says.

        What one offers next leaves after what is held: little of it lets a user change its mind on a slow link.
        """
        self._held = self._high_water if size is None else size
        if not self.closed:
            self._limit()

    def ahead(self) -> int | None:
        """Give the bytes on their way that keep this connection busy; None: not known, as much as may be."""
        seconds = None if self.relayed or self.closed else tuning.round_trip(self.transport)
        return None if seconds is None else AHEAD + int(AHEAD_RATE * seconds)

    @property
    def flushed(self) -> int:
        """Bytes that have left for the kernel so far."""
        return self.written - (0 if self.closed else self.transport.get_write_buffer_size())

    def holds_memory(self) -> bool:
        """Say whether the transport still refers to memory of a user. Sealed bodies are copies."""
        return not (self._seal_bodies or self.closed) and self.transport.get_write_buffer_size() > 0

    async def drained(self) -> None:
        """Wait until the kernel has taken everything written so far."""
        if self.closed or not self.transport.get_write_buffer_size():
            return
        self.transport.set_write_buffer_limits(high=0)
        self._drained = self._drained or asyncio.get_running_loop().create_future()
        await asyncio.shield(self._drained)

    def pump(self) -> None:
        """Write frames while the transport takes them and there are any."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not (self._paused or self.closed or self._held_back()):
                frame = self._next_frame()
                if frame is None:
                    self._starved = True
                    break
                self._write(frame)
        except IctError as error:
            self.fail(error)
        finally:
            self._pumping = False

    # Handshake.

    def say(self, hello: Hello) -> None:
        """Send a hello, in clear."""
        self._put(hello.pack())

    def secure(self, peer: PeerId, send_key: bytes, receive_key: bytes, *, seal_bodies: bool) -> None:
        """Seal from here on, and prove to the other end that we can."""
        self.peer = peer
        self._outbound, self._inbound = Seal(send_key), Seal(receive_key)
        self._write(Frame(Kind.CONFIRM, NO_TAG), sealed=True)
        self._seal_bodies = seal_bodies

    def fail(self, error: IctError) -> None:
        """Drop the connection because of `error`."""
        if not self.closed:
            self._close(error)
            self.transport.abort()

    def hang_up(self, error: IctError) -> None:
        """Drop the connection because of `error`, after what has been written."""
        if not self.closed:
            self.transport.close()
            self._close(error)

    async def close(self, reason: IctError) -> None:
        """Let everything written arrive, then end the connection, within a second.

        Only our direction is closed at first: a socket that is closed with unread bytes resets the connection, and the
        other end would lose what it has not read yet.
        """
        if self.closed:
            return
        self._close(reason)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._gone.wait()
        except TimeoutError:
            self.transport.abort()

    def release(self) -> asyncio.Transport:
        """Give the transport away, before any frame; this object is done."""
        self.closed = True
        return self.transport

    # What asyncio does.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin on `transport`."""
        self.transport = cast("asyncio.Transport", transport)
        self._wakeups = tuning.Wakeups(self.transport)
        self._limit()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go."""
        if self.closed:
            return memoryview(self._fixed)
        return self._view[self._filled :] if self._filled else self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that were read."""
        if self.closed:
            return
        self.received += nbytes
        self._filled += nbytes
        if self._filled < len(self._view):
            if self._header is not None:
                self._wakeups.expect(len(self._view) - self._filled)
            return
        try:
            self._advance()
        except IctError as error:
            self.fail(error)

    def eof_received(self) -> None:
        """Close when the other end has."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._gone.set()
        if not self.closed:
            self._close(ConnectionLost(f"connection reset: {exc}") if exc else None)

    def pause_writing(self) -> None:
        """The transport holds enough."""
        self._paused = True

    def resume_writing(self) -> None:
        """The transport wants more."""
        self._paused = False
        if self._drained is not None:
            self._limit()
            self._drained.set_result(None)
            self._drained = None
        self.pump()

    # Reading.

    def _advance(self) -> None:
        """Act on the header or body that is now complete, and aim at the next one."""
        if not self._greeted:
            self._greeted = True
            hello = read_hello(self._view)
            self._expect_header()
            self._owner.greeted(self, hello)
        elif self._header is None:
            self._header = header = read_header(self._view)
            self._expect_body(header)
        else:
            self._take_body(self._header)

    def _expect_header(self) -> None:
        self._header = self._target = None
        self._wakeups.relax()
        self._view = memoryview(self._fixed)[:HEADER_BYTES]
        self._filled = 0

    def _expect_body(self, header: Header) -> None:
        if not self._confirmed and header.kind is not Kind.CONFIRM:
            raise RemoteProtocolError(f"{header.kind.name} frame before the keys were confirmed")
        self._filled = 0
        if self._sealed(header):
            self._view = self._own(header.length + SEAL_BYTES)
            return
        self._user = self._owner.user(self, header)
        if header.length:
            self._target = self._user.place(header) if self._user else None
            self._view = self._target if self._target is not None else self._own(header.length)
        else:
            self._take_body(header)

    def _take_body(self, header: Header) -> None:
        """Hand a whole body over. Who left, or came, while it was being read does not get it."""
        view, user, self._user = self._view, self._user, None
        if not self._sealed(header):
            self._expect_header()
            if user is not None:
                user.take(header, view[: header.length])
            return
        packed = bytes(memoryview(self._fixed)[:HEADER_BYTES])
        self._expect_header()
        user = self._owner.user(self, header) if self._confirmed else None
        body = self._open(packed, header, view, user)
        if header.kind is Kind.CONFIRM:
            if self._confirmed:
                raise RemoteProtocolError("keys were confirmed twice")
            self._confirmed = True
            self._owner.confirmed(self)
        elif user is not None:
            user.take(header, body)

    def _open(self, packed: bytes, header: Header, sealed: memoryview, user: User | None) -> memoryview:
        target = user.place(header) if user and header.length else None
        if target is None:
            if len(self._opened) < header.length:
                self._opened = bytearray(header.length)
            target = memoryview(self._opened)[: header.length]
        if self._inbound is None:
            raise RemoteProtocolError("sealed frame before the hellos were exchanged")
        self._inbound.open(packed, sealed, target)
        return target

    def _sealed(self, header: Header) -> bool:
        return self._seal_bodies or header.kind is Kind.CONFIRM

    def _own(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]

    # Writing.

    def _next_frame(self) -> Frame | None:
        if not self._confirmed:
            return None
        if self._control:
            return self._control.popleft()
        for _ in range(len(self._users)):
            user = self._users.pop(0)
            self._users.append(user)
            frame = user.next_frame()
            if frame is not None:
                return frame
        return None

    def _write(self, frame: Frame, *, sealed: bool = False) -> None:
        size = sum(map(len, frame.views))
        # A pause while the transport still had bytes to send was none for the link.
        starved = self._starved and self.transport.get_write_buffer_size() == 0
        header = Header(frame.kind, frame.tag, frame.first, frame.second, size, starved).pack()
        self._starved = False
        if sealed or self._seal_bodies:
            self._write_sealed(header, frame, size)
        elif size <= _COALESCE_BYTES:
            self._put(b"".join((header, *frame.views)))
        elif not frame.stable:
            buffer = self._reusable(HEADER_BYTES + size)
            self._put_kept(buffer, _gathered((header, *frame.views), memoryview(buffer)[: HEADER_BYTES + size]))
        else:
            self._put(header)
            for view in frame.views:
                self._put(view)
        self._bucket.spend(HEADER_BYTES + size)

    def _write_sealed(self, header: bytes, frame: Frame, size: int) -> None:
        assert self._outbound is not None
        total = HEADER_BYTES + size + SEAL_BYTES
        buffer = self._reusable(total)
        view = memoryview(buffer)[:total]
        view[:HEADER_BYTES] = header
        body = frame.views[0] if len(frame.views) == 1 else _gathered(frame.views, view[HEADER_BYTES:-SEAL_BYTES])
        self._outbound.seal(header, body, view[HEADER_BYTES:])
        self._put_kept(buffer, view)

    def _put_kept(self, buffer: bytearray, view: memoryview) -> None:
        """Write what stands in a buffer of our own, and keep that from being used again before it has left."""
        self._put(view)
        self._in_flight.append((self.written, buffer))

    def _reusable(self, size: int) -> bytearray:
        """Take the oldest buffer that the transport has let go of, if it is large enough."""
        if self._in_flight and self._in_flight[0][0] <= self.flushed:
            _, buffer = self._in_flight.popleft()
            if len(buffer) >= size:
                return buffer
        return bytearray(size)

    def _put(self, data: bytes | memoryview) -> None:
        self.written += len(data)
        self.transport.write(data)

    def _held_back(self) -> bool:
        """Wait for the pacing bucket, if it is in debt."""
        if not self._bucket.limited:
            return False
        delay = self._bucket.delay(self._clock())
        if not delay:
            return False
        if self._wakeup is None:
            self._wakeup = asyncio.get_running_loop().call_later(delay, self._wake)
        self._starved = True
        return True

    def _wake(self) -> None:
        self._wakeup = None
        self.pump()

    def _limit(self) -> None:
        self.transport.set_write_buffer_limits(high=self._held, low=self._held // 4)

    # Ending.

    def _tick(self) -> None:
        assert self._watch is not None
        if not self._users:
            self._ticker = None
            return
        expecting = any(user.expecting() for user in self._users)
        pending = self.transport.get_write_buffer_size() > 0
        stalled = self._watch.check(self.received, self.flushed, expecting=expecting, pending=pending)
        if stalled:
            self.fail(ConnectionLost(stalled))
            return
        if self.received == self._received_at_tick:
            self._wakeups.relax()
        self._received_at_tick = self.received
        if self.written == self._written_at_tick:
            self.send(Kind.ALIVE)
        self._written_at_tick = self.written
        self._ticker = asyncio.get_running_loop().call_later(self._watch.interval, self._tick)

    def _close(self, error: IctError | None) -> None:
        self.closed = True
        for timer in (self._wakeup, self._ticker):
            if timer is not None:
                timer.cancel()
        self._wakeup = self._ticker = None
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None
        self._users.clear()
        self._in_flight.clear()
        self._owner.closed(self, error)


def _gathered(views: Sequence[bytes | memoryview], room: memoryview) -> memoryview:
    """Copy views one behind the other into `room`, where they are then sealed in place."""
    start = 0
    for view in views:
        room[start : start + len(view)] = view
        start += len(view)
    return room
