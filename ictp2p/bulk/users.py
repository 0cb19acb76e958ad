"""Who uses a connection, and who holds it, as protocols; and what a user has to send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ictp2p.bulk.frames import Header, Hello, Kind
from ictp2p.bulk.seal import gathered
from ictp2p.errors import IctError

if TYPE_CHECKING:
    from ictp2p.bulk.connection import BulkConnection


class Frame(msgspec.Struct, frozen=True):
    """What a user has to send."""

    kind: Kind
    tag: bytes
    first: int = 0
    second: int = 0
    views: Sequence[bytes | memoryview] = ()
    stable: bool = False
    """The memory keeps its content until the user is done with the connection."""
    size: int = 0
    """Bytes, of a body that is made."""
    make: Callable[[memoryview], None] | None = None
    """Makes the body where it leaves from, at once."""
    broke: Callable[[Exception], None] | None = None
    """Told why nothing of it has left, if that is our own fault: it could not be made, or memory was lacking for it."""

    def put(self, room: memoryview) -> None:
        """Have the body in `room`, which has its length; raises what `make` does."""
        if self.make is not None:
            self.make(room)
        else:
            gathered(self.views, room)


class User(Protocol):
    """What sends and receives under one tag."""

    def next_frame(self) -> Frame | None:
        """Give the next frame to send, or None until `BulkConnection.kick`."""
        ...

    def place(self, header: Header) -> memoryview | list[memoryview] | None:
        """Say where a body may land, in one piece or in several; None: in the connection's buffer."""
        ...

    def take(self, header: Header, body: memoryview) -> None:
        """Take a whole body: what `place` gave, or valid only during the call; empty: it lies in the several pieces."""
        ...

    def expecting(self) -> bool:
        """Say whether the peer owes us something, so that its silence is a fault."""
        ...

    def lost(self, error: IctError) -> None:
        """The connection has gone."""
        ...


class Owner(Protocol):
    """Who holds the connections: `Pool`."""

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
