"""The reading half of a bulk connection: a buffered asyncio protocol that receives straight into its destination.

Headers are read ahead, with what is small behind them: one read, then, brings several frames. The rest of a long body
goes where its user wants it: in clear the kernel writes it there (a tensor); sealed, it goes to a buffer of the
connection and is opened into place. One in memory that both ends share is used where it lies, or copied into place.
Reading never pauses: every user can take what its peer may send, which is what the collectives' freedom from deadlock
rests on.

Each chunk of a large transfer has pushed all of the interpreter's own code and data out of the caches by the time that
the next one is handled, so a call costs many times what it costs in a loop that does nothing else. Hence few and flat
ones, and whose a run of chunks is looked up once.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from ictp2p.bulk import kernel
from ictp2p.bulk.frames import (
    HEADER_BYTES,
    HELLO_BYTES,
    HELLO_START,
    SEAL_BYTES,
    Header,
    Hello,
    Kind,
    check_hello,
    read_header,
    read_hello,
)
from ictp2p.bulk.seal import Seal, scatter
from ictp2p.bulk.shared import Reader
from ictp2p.bulk.users import User
from ictp2p.bulk.wakeups import Wakeups
from ictp2p.errors import IctError, RemoteProtocolError

CHUNKS = frozenset({Kind.PARTIAL, Kind.RESULT})
_NOTHING = memoryview(b"")
AHEAD = 4096
"""Bytes that are read ahead at most: of a long body so much is copied once more."""


class Inbound(asyncio.BufferedProtocol):
    """Reads a hello, then frames, and hands them over."""

    def __init__(self) -> None:
        self.received = 0
        """Bytes read so far."""
        self.closed = False
        self._inbound: Seal | None = None
        self._seal_bodies = True
        self._confirmed = False
        self._greeted = False
        self._wakeups: Wakeups
        self.ring: Reader | None = None
        """Where the other end puts bodies, if it is on this host and we have opened that."""
        self._ahead = memoryview(bytearray(AHEAD))
        self._have = 0
        """How many bytes were read ahead: of a header, at most, once all before it has been taken."""
        self._buffer = bytearray()
        self._opened = bytearray()
        self._header: Header | None = None
        """Of the body that is being read."""
        self._packed = _NOTHING
        """That header as it came."""
        self._target: memoryview | None = None
        self._pieces: list[memoryview] = []
        """Where the rest of a body goes that lands in several pieces, the last one first."""
        self._user: User | None = None
        self._scattered = False
        self._regular: tuple[bytes, User] | None = None
        """Whose the last chunk was, by its tag."""
        self._view = _NOTHING
        """Where the body, or this piece of it, goes."""
        self._filled = 0

    @abstractmethod
    def fail(self, error: IctError) -> None:
        """Drop the connection because of `error`."""

    @abstractmethod
    def _hello_came(self, hello: Hello) -> None:
        """Act on the other end's hello."""

    @abstractmethod
    def _confirmation_came(self, proof: bytes) -> None:
        """The other end holds the keys; raises if it does not prove that they are those of who it says that it is."""

    @abstractmethod
    def _taker(self, header: Header) -> User | None:
        """Say who takes a frame."""

    @abstractmethod
    def _freed(self, position: int) -> None:
        """All shared memory up to `position` has been used: tell the other end."""

    @abstractmethod
    def _uses(self, user: User) -> bool:
        """Say whether `user` has joined this connection."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go: before the hello has come nothing behind it may be read, for a relay."""
        if self.closed:
            return self._ahead
        if self._header is None:
            return self._ahead[self._have :] if self._greeted else self._ahead[self._have : HELLO_BYTES]
        return self._view[self._filled :] if self._filled else self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that were read; act on every frame that is whole, and aim at the rest of the next one."""
        if self.closed:
            return
        self.received += nbytes
        try:
            if self._header is None:
                self._have += nbytes
                self._parse()
            else:
                self._filled += nbytes
                if self._filled == len(self._view):
                    self._take_whole()
                if self._header is not None:
                    self._wakeups.expect(len(self._view) - self._filled)
        except IctError as error:
            self.fail(error)

    def _forget(self, user: User, tag: bytes) -> None:
        """Let what arrives under `tag` touch the memory of `user` no more, not even a body half read."""
        self._regular = None
        if self._user is user:
            self._user = None
        if self._header is not None and self._header.tag == tag and self._target is not None:
            size = len(self._view) + sum(map(len, self._pieces))
            self._target = None
            self._pieces.clear()
            self._view = self._own(size)

    def _let_go(self) -> None:
        """Know nobody any more who knows us: in a cycle their tensors would stay until the garbage collector comes."""
        self._regular = self._user = self._target = None
        self._pieces.clear()
        self._view = _NOTHING

    def _parse(self) -> None:
        """Act on all frames in what was read ahead; what is left is a part of a header, or goes to a body."""
        at = 0
        while self._header is None and not self.closed:
            end = at + (HEADER_BYTES if self._greeted else HELLO_BYTES)
            if end > self._have:
                if not self._greeted and self._have >= HELLO_START:
                    check_hello(self._ahead[:HELLO_START])
                break
            head = self._ahead[at:end]
            if self._greeted:
                at = self._begin(read_header(head), head, end)
            else:
                at, self._greeted = end, True
                self._hello_came(read_hello(head))
        self._ahead[: self._have - at] = self._ahead[at : self._have]
        self._have -= at
        if self._header is not None:
            self._wakeups.expect(len(self._view) - self._filled)

    def _begin(self, header: Header, packed: memoryview, at: int) -> int:
        """Act on a frame whose body begins at `at` of what was read ahead; give where what it leaves there begins."""
        proves = header.kind is Kind.CONFIRM and header.length <= kernel.JUMBO
        if not (self._confirmed or proves):  # anybody may have sent it
            raise RemoteProtocolError(f"{header.kind.name} of {header.length} bytes before the keys were confirmed")
        size = 0 if header.shared else header.length
        sealed = self._seal_bodies or header.kind is Kind.CONFIRM
        if sealed:
            size += SEAL_BYTES
            place = None
        elif header.shared:
            self._take_shared(header)
            return at
        else:
            user = self._user = self._user_of(header)
            place = user.place(header) if user is not None and size else None
        end = at + size
        if place is None and end <= self._have:
            self._take(header, packed, self._ahead[at:end], sealed=sealed)
            return end
        self._header, self._packed, self._filled = header, packed, 0
        self._aim(place, size)
        return self._fill(at)

    def _aim(self, place: memoryview | list[memoryview] | None, size: int) -> None:
        """Let a body be read into its place, which may be in several pieces, or to a buffer of ours."""
        self._scattered = isinstance(place, list)
        if isinstance(place, list):
            self._pieces = place[::-1]
            place = self._pieces.pop()
        self._target = place
        self._view = place if place is not None else self._own(size)

    def _fill(self, at: int) -> int:
        """Move what was read ahead to the body that it belongs to; give where the rest begins."""
        while at < self._have and self._header is not None:
            start, size = self._filled, min(len(self._view) - self._filled, self._have - at)
            self._view[start : start + size] = self._ahead[at : at + size]
            self._filled += size
            at += size
            if self._filled == len(self._view):
                self._take_whole()
        return at

    def _take_whole(self) -> None:
        """Go on to the next piece of a body, or hand it over; who left, or came, since it began does not get it."""
        if self._pieces:
            self._view, self._filled = self._pieces.pop(), 0
            return
        header, view = self._header, self._view
        assert header is not None
        self._header = self._target = None
        self._wakeups.expect(1)
        sealed = self._seal_bodies or header.kind is Kind.CONFIRM
        self._take(header, self._packed, _NOTHING if self._scattered else view, sealed=sealed)

    def _take(self, header: Header, packed: memoryview, body: memoryview, *, sealed: bool) -> None:
        """Act on a whole frame."""
        if sealed:
            self._take_sealed(header, packed, body)
            return
        user, self._user = self._user, None
        if user is not None:
            user.take(header, body)

    def _take_sealed(self, header: Header, packed: memoryview, sealed: memoryview) -> None:
        if header.shared:
            self._opener().open(packed, sealed, self._ahead[:0])
            self._take_shared(header)
            return
        user = self._user_of(header) if self._confirmed else None
        target = user.place(header) if user is not None and header.length else None
        body = self._open(packed, header, sealed, target)
        if header.kind is Kind.CONFIRM:
            if self._confirmed:
                raise RemoteProtocolError("keys were confirmed twice")
            self._confirmed = True
            self._confirmation_came(bytes(body))
        elif user is not None:
            user.take(header, body)

    def _open(
        self, packed: memoryview, header: Header, sealed: memoryview, target: memoryview | list[memoryview] | None
    ) -> memoryview:
        if isinstance(target, list):
            self._opener().open_pieces(packed, sealed, target)
            return _NOTHING
        if target is None:
            if len(self._opened) < header.length:
                self._opened = bytearray(header.length)
            target = memoryview(self._opened)[: header.length]
        self._opener().open(packed, sealed, target)
        return target

    def _opener(self) -> Seal:
        if self._inbound is None:
            raise RemoteProtocolError("sealed frame before the hellos were exchanged")
        return self._inbound

    def _take_shared(self, header: Header) -> None:
        """Hand over a body that lies in shared memory; what has no place of its own is used there."""
        ring = self.ring
        if ring is None:
            raise RemoteProtocolError(f"{header.kind.name} in shared memory, and none was opened")
        self.received += header.length
        body, user = ring.read(header.length), self._user_of(header)
        if user is not None:
            place = user.place(header)
            if place is not None:
                scatter(body, place if isinstance(place, list) else [place])
            user.take(header, body if place is None else place if isinstance(place, memoryview) else _NOTHING)
        if position := ring.done():
            self._freed(position)

    def _user_of(self, header: Header) -> User | None:
        """Find who takes a frame; who takes one chunk takes the others of its tag, until it leaves."""
        regular = self._regular
        if regular is not None and regular[0] == header.tag and header.kind in CHUNKS:
            return regular[1]
        user = self._taker(header)
        if user is not None and header.kind in CHUNKS and self._uses(user):
            self._regular = header.tag, user
        return user

    def _own(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]
