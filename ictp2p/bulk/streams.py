"""Requests, replies and probes: what one peer asks of another beside the collectives, on the same connections.

A request names a kind and a destination; the reply is a stream of chunks in order, each landing in its place of
that destination, so a slow reader of one stream cannot hold up another. Served lazily: the handler is asked for its
next buffer when the connection has taken the last one.

A probe is a timed blast. Its receiver measures it, from the first frame's end to the last one's, and says so. It ends
after its bytes or its seconds, whichever comes first: bytes alone would hold a slow link for minutes. Once somebody
needs the link for more than measuring it, the probe ends at once (`Probe.stop`); what such a one has measured is but a
lower bound, for it may have been cut short in slow start.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Buffer, Header, Kind, read_measured
from ictp2p.bulk.pacing import Meter
from ictp2p.bulk.users import Frame
from ictp2p.errors import IctError, RemoteProtocolError, StateError, printable
from ictp2p.types import PeerId
from ictp2p.wire import MALFORMED

T = TypeVar("T")
Handler: TypeAlias = Callable[[PeerId, bytes], AsyncGenerator[Buffer, None]]
"""Answers a request: given who asks and its payload, yields the reply's buffers in order. An `IctError` that it
raises travels to the one who asked, as a `StateError` with the same text."""
RECEIPT: Final = bytearray()
"""Yielded last by a handler that gives something away: it goes on once who asked has said that all of it is there
(`Bulk.request`, `receipt`). What it would give is its own again where that is never said: it is cancelled then."""


@dataclass(frozen=True, slots=True)
class Service:
    """Who answers the requests of one kind, and how many of a connection at a time: one takes no place of another."""

    handler: Handler
    limit: int


REPLY_CHUNK = 256 * 1024
"""Bytes of a reply that leave as one: who asked sees that more is coming, at a quarter of a Mbit/s within 10 s."""
MAX_REQUEST = 64 * 1024
PROBE_CHUNK = 64 * 1024
"""Bytes of a probe's first frame, and of every one on a link that takes `_PROBE_STEP` for so many."""
PROBE_MOST = 4 * PROBE_CHUNK
"""Bytes of a probe's largest frame."""
MAX_PROBE = 256 * 1024 * 1024
_PROBE_STEP = 0.05
"""Seconds that one frame of a probe may take of the link: others wait for it, and the end of a probe does."""
_ZEROS = memoryview(bytes(PROBE_MOST))
_LAST = 1
"""Bytes of the frame that ends a probe early."""
MOST_REASON = 1024
"""Bytes of why a request has no reply: such answers may wait in great number for whoever asks and does not read
(`connection.MOST_WAITING`)."""
_FAILED = 1


class Request(msgspec.Struct, frozen=True, array_like=True):
    """The body of a `REQUEST` frame."""

    kind: str
    payload: bytes


def read_request(body: memoryview) -> Request:
    """Read a request.

    Raises:
        RemoteProtocolError: it is too long or not a request.
    """
    if len(body) > MAX_REQUEST:
        raise RemoteProtocolError(f"request of {len(body)} bytes exceeds {MAX_REQUEST}")
    try:
        return msgspec.msgpack.decode(body, type=Request)
    except MALFORMED as error:
        raise RemoteProtocolError(f"request does not decode: {error}") from error


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the receiver of a probe measured."""

    size: int
    """Bytes that arrived after the first frame."""
    seconds: float
    limited: bool
    """Whether the link can do more than this shows."""
    told: float
    """When the receiver said so, seconds of the monotonic clock: what is tried next may be in vain, and take long."""


class Asking(Generic[T]):
    """What is asked of a peer, until it is here or the connection has gone."""

    def __init__(self) -> None:
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def expecting(self) -> bool:
        """It is due."""
        return not self.result.done()

    def lost(self, error: IctError) -> None:
        """The connection has gone."""
        if not self.result.done():
            self.result.set_exception(error)


class Fetch(Asking[int]):
    """The asking side of one request (`users.User`)."""

    def __init__(
        self, destination: memoryview, progress: Callable[[int], None] | None, clock: Callable[[], float]
    ) -> None:
        super().__init__()
        self.ended = False
        """The serving side has ended the reply."""
        self.meter = Meter()
        self._clock = clock
        self._destination = destination
        self._progress = progress
        self._filled = 0

    def next_frame(self) -> Frame | None:
        """Ask for nothing more."""
        return None

    def place(self, header: Header) -> memoryview | None:
        """Aim at the next free bytes of the destination; an `END` carries a reason, which has no place there.

        Nothing follows from a header here: its seal has yet to be looked at.
        """
        if header.kind is not Kind.REPLY or self.result.done() or not self._fits(header):
            return None
        return self._destination[self._filled : self._filled + header.length]

    def take(self, header: Header, body: memoryview) -> None:
        """Count a chunk, or end.

        A reply that does not fit ends this request alone, and what still comes of it is read past: others have the
        connection too.
        """
        if header.kind is Kind.END:
            self.ended = True
        if self.result.done():
            return
        if header.kind is Kind.REPLY and not self._fits(header):
            piece = f"[{header.second}, {header.second + header.length})"
            self._fail(f"reply bytes {piece} at {self._filled} of {len(self._destination)}")
        elif header.kind is Kind.REPLY:
            self._filled += header.length
            self.meter.add(header.length, header.starved, self._clock())
            if self._progress is not None:
                self._progress(self._filled)
        elif header.kind is Kind.END:
            if header.first == _FAILED:
                self._fail(printable(str(body, "utf-8", "replace")))
            elif header.second != self._filled:
                self._fail(f"reply of {header.second} bytes, got {self._filled}")
            else:
                self.result.set_result(self._filled)

    def _fits(self, header: Header) -> bool:
        return header.second == self._filled and self._filled + header.length <= len(self._destination)

    def _fail(self, why: str) -> None:
        self.result.set_exception(StateError(why))


class Serving:
    """The answering side of one request (`users.User`): a task that runs the handler one buffer ahead."""

    def __init__(self, connection: BulkConnection, tag: bytes, parts: AsyncGenerator[Buffer, None]) -> None:
        self._connection = connection
        self._tag = tag
        self._parts = parts
        self._pending: Frame | None = None
        self._taken = asyncio.Event()
        self._sent = 0
        self._ended = False
        self._received = asyncio.Event()

    async def run(self) -> None:
        """Send the whole reply, or the reason why there is none."""
        try:
            async with contextlib.aclosing(self._parts) as parts:
                async for part in parts:
                    if part is RECEIPT:
                        await self._receipt()
                        continue
                    view = memoryview(part).cast("B")
                    for start in range(0, len(view), REPLY_CHUNK):
                        await self._offer(view[start : start + REPLY_CHUNK])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".encode(errors="replace")[:MOST_REASON]  # a path may be no text
            if not self._ended:
                self._connection.send(Kind.END, self._tag, _FAILED, 0, reason)
            if not isinstance(error, IctError):
                raise
        else:
            self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._connection.send(Kind.END, self._tag, 0, self._sent)

    async def _receipt(self) -> None:
        self._end()
        await self._received.wait()

    async def _offer(self, view: memoryview) -> None:
        self._pending = Frame(Kind.REPLY, self._tag, 0, self._sent, (view,))
        self._sent += len(view)
        self._taken.clear()
        self._connection.kick(self)
        await self._taken.wait()

    def next_frame(self) -> Frame | None:
        """Give the buffer that the handler made."""
        frame, self._pending = self._pending, None
        if frame is not None:
            self._taken.set()
        return frame

    def place(self, header: Header) -> memoryview | None:
        """Nothing that is sent to us under this tag has a body."""
        return None

    def take(self, header: Header, body: memoryview) -> None:
        """Take the receipt; all else is the desk's."""
        if header.kind is Kind.RECEIPT:
            self._received.set()

    def expecting(self) -> bool:
        """Say whether the asking side owes us a receipt."""
        return self._ended and not self._received.is_set()

    def lost(self, error: IctError) -> None:
        """The connection has gone; `Desk` cancels the task."""


class Probe(Asking[ProbeResult]):
    """The sending side of a probe (`users.User`).

    Args:
        tag: of its frames.
        size: bytes at most.
        seconds: after which it ends, from its first frame on.
        clock: monotonic seconds.
    """

    def __init__(self, tag: bytes, size: int, seconds: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self._tag = tag
        self._left = size
        self._seconds = seconds
        self._clock = clock
        self._began = math.inf
        self._sent = 0
        self._stopped = False

    def stop(self) -> None:
        """Let the next frame be the last one, and a small one."""
        self._stopped = self._stopped or self._left > 0

    def next_frame(self) -> Frame | None:
        """Give the next bytes of the blast. One that holds all that is left is the last one, and tells of a stop."""
        if not self._left:
            return None
        now = self._clock()
        self._began = min(self._began, now)
        if self._stopped or now >= self._began + self._seconds:
            self._left = min(self._left, _LAST)
        left, size = self._left, min(self._left, self._step(now - self._began))
        self._left -= size
        self._sent += size
        return Frame(Kind.PROBE, self._tag, int(self._stopped), left, (_ZEROS[:size],), stable=True)

    def _step(self, elapsed: float) -> int:
        """Bytes of the next frame: what the link took in a step so far. A fast link is measured by few frames."""
        if not elapsed:
            return PROBE_CHUNK
        return max(PROBE_CHUNK, min(PROBE_MOST, int(self._sent * _PROBE_STEP / elapsed)))

    def place(self, header: Header) -> memoryview | None:
        """A measurement is read from the connection's buffer."""
        return None

    def take(self, header: Header, body: memoryview) -> None:
        """Take the receiver's measurement."""
        if header.kind is Kind.MEASURED and not self.result.done():
            self.result.set_result(ProbeResult(*read_measured(body), self._clock()))
