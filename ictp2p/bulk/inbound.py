"""The reading half of a bulk connection: a buffered asyncio protocol that receives straight into its destination.

The fixed header first, then the body. In clear the kernel writes the body where its user wants it (a tensor); sealed,
it goes to a buffer of the connection and is opened into place. One in memory that both ends share is used where it
lies, or copied into place. Reading never pauses: every user can take what its peer may send, which is what the
collectives' freedom from deadlock rests on.

Each chunk of a large transfer has pushed all of the interpreter's own code and data out of the caches by the time that
the next one is handled, so a call costs many times what it costs in a loop that does nothing else. Hence few and flat
ones, and whose a run of chunks is looked up once.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from ictp2p.bulk import tuning
from ictp2p.bulk.frames import HEADER_BYTES, HELLO_BYTES, SEAL_BYTES, Header, Hello, Kind, read_header, read_hello
from ictp2p.bulk.seal import Seal
from ictp2p.bulk.shared import Reader
from ictp2p.bulk.users import User
from ictp2p.errors import IctError, RemoteProtocolError

CHUNKS = frozenset({Kind.PARTIAL, Kind.RESULT})
_NOTHING = memoryview(b"")


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
        self._wakeups: tuning.Wakeups
        self._ring: Reader | None = None
        """Where the other end puts bodies, if it is on this host."""
        self._fixed = memoryview(bytearray(max(HELLO_BYTES, HEADER_BYTES)))
        self._head = self._fixed[:HEADER_BYTES]
        self._buffer = bytearray()
        self._opened = bytearray()
        self._header: Header | None = None
        self._target: memoryview | None = None
        self._pieces: list[memoryview] = []
        """Where the rest of a body goes that lands in several pieces, the last one first."""
        self._user: User | None = None
        self._scattered = False
        self._regular: tuple[bytes, User] | None = None
        """Whose the last chunk was, by its tag."""
        self._view = self._fixed[:HELLO_BYTES]
        self._filled = 0

    @abstractmethod
    def fail(self, error: IctError) -> None:
        """Drop the connection because of `error`."""

    @abstractmethod
    def _hello_came(self, hello: Hello) -> None:
        """Act on the other end's hello."""

    @abstractmethod
    def _confirmation_came(self) -> None:
        """The other end holds the keys."""

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
        """Say where the next bytes go."""
        if self.closed:
            return self._fixed
        return self._view[self._filled :] if self._filled else self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that were read; once a header or a body is whole, act on it, and aim at the next one."""
        if self.closed:
            return
        self.received += nbytes
        self._filled += nbytes
        missing = len(self._view) - self._filled
        header = self._header
        if missing:
            if header is not None:
                self._wakeups.expect(missing)
            return
        if self._pieces:
            self._view, self._filled = self._pieces.pop(), 0
            return
        try:
            if header is not None:
                self._take_body(header)
            elif self._greeted:
                self._expect_body(read_header(self._view))
            else:
                self._greet(read_hello(self._view))
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

    def _greet(self, hello: Hello) -> None:
        self._greeted = True
        self._expect_header()
        self._hello_came(hello)

    def _expect_header(self) -> None:
        self._header = self._target = None
        self._scattered = False
        self._wakeups.expect(1)
        self._view = self._head
        self._filled = 0

    def _expect_body(self, header: Header) -> None:
        self._header = header
        self._filled = 0
        if not self._confirmed and (header.kind is not Kind.CONFIRM or header.length):  # anybody may have sent it
            raise RemoteProtocolError(f"{header.kind.name} of {header.length} bytes before the keys were confirmed")
        if self._seal_bodies or header.kind is Kind.CONFIRM:
            self._view = self._own(SEAL_BYTES + (0 if header.shared else header.length))
            return
        if header.shared:
            self._expect_header()
            self._take_shared(header)
            return
        user = self._user = self._user_of(header)
        if header.length:
            place = user.place(header) if user is not None else None
            if isinstance(place, list):
                self._scattered = True
                self._pieces = place[::-1]
                place = self._pieces.pop()
            self._target = place
            self._view = place if place is not None else self._own(header.length)
        else:
            self._view = _NOTHING
            self._take_body(header)

    def _take_body(self, header: Header) -> None:
        """Hand a whole body over. Who left, or came, while it was being read does not get it."""
        view, user, self._user = self._view, self._user, None
        if self._seal_bodies or header.kind is Kind.CONFIRM:
            self._take_sealed(header, view)
            return
        scattered = self._scattered
        self._expect_header()
        if user is not None:
            user.take(header, _NOTHING if scattered else view)

    def _take_sealed(self, header: Header, sealed: memoryview) -> None:
        packed = bytes(self._head)
        self._expect_header()
        if header.shared:
            self._opener().open(packed, sealed, self._fixed[:0])
            self._take_shared(header)
            return
        user = self._user_of(header) if self._confirmed else None
        body = self._open(packed, header, sealed, user)
        if header.kind is Kind.CONFIRM:
            if self._confirmed:
                raise RemoteProtocolError("keys were confirmed twice")
            self._confirmed = True
            self._confirmation_came()
        elif user is not None:
            user.take(header, body)

    def _open(self, packed: bytes, header: Header, sealed: memoryview, user: User | None) -> memoryview:
        target = user.place(header) if user is not None and header.length else None
        if not isinstance(target, memoryview):
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
        if self._ring is None:
            raise RemoteProtocolError(f"{header.kind.name} in shared memory, and none was opened")
        self.received += header.length
        body, user = self._ring.read(header.length), self._user_of(header)
        if user is not None:
            place = user.place(header)
            for piece in place if isinstance(place, list) else [] if place is None else [place]:
                piece[:] = body[: len(piece)]
                body = body[len(piece) :]
            user.take(header, body if place is None else place if isinstance(place, memoryview) else _NOTHING)
        if position := self._ring.done():
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
