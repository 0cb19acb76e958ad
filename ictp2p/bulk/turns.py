"""One probe at a time on every line: who is to be probed says when.

A probe measures what its link can do, and so it wants both lines for itself: the sender's, which is its own business
(`gossip.links` probes one neighbour after the other), and the receiver's, of which only the receiver knows who else
wants it. Without turns eight clusters that had just met measured links at a half, a third, a fifth of what they are,
wherever two or five of them had happened to probe the same neighbour: request to send, clear to send (Karn, MACA,
1990), between ends that can ask for it.

A turn ends with the last frame of its probe, with its connection, when the sender takes it back, or after so many
seconds; so nobody waits for one who is gone. Its receiver has nothing to say before all of it is here, which on a slow
line, with what kernels hold, takes longer than a peer may be silent: so until then it says that it is there.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from ictp2p.bulk.frames import Header, Kind
from ictp2p.errors import IctError

if TYPE_CHECKING:
    from ictp2p.bulk.connection import BulkConnection


class Turns:
    """The receiving side: grants one turn at a time, in the order in which they were asked for.

    Args:
        seconds: after which a turn is over, whatever has become of it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: OrderedDict[BulkConnection, bytes] = OrderedDict()
        self._probing: tuple[BulkConnection, bytes] | None = None
        self._over: asyncio.TimerHandle | None = None

    def ask(self, connection: BulkConnection, tag: bytes) -> None:
        """Grant a turn, now or when those before it are over; of one connection the newest counts."""
        self._waiting[connection] = tag
        self._next()

    def end(self, connection: BulkConnection, tag: bytes | None = None) -> None:
        """Take it that a turn is over, or is not wanted any more; without a tag whichever the connection has."""
        if tag in (None, self._waiting.get(connection)):
            self._waiting.pop(connection, None)
        if self._probing is not None and self._probing[0] is connection and tag in (None, self._probing[1]):
            self._free()

    def _next(self) -> None:
        if self._probing is None and self._waiting:
            connection, tag = self._probing = self._waiting.popitem(last=False)
            self._over = asyncio.get_running_loop().call_later(self._seconds, self._free)
            connection.send(Kind.GRANT, tag)

    def _free(self) -> None:
        if self._over is not None:
            self._over.cancel()
        self._probing = None
        self._next()


class Turn:
    """The sending side: waits until it is granted (`users.User`)."""

    def __init__(self) -> None:
        self.granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """False: it is not wanted any more."""

    def stop(self) -> None:
        """Want it no more."""
        if not self.granted.done():
            self.granted.set_result(False)

    def next_frame(self) -> None:
        """Send nothing yet."""

    def place(self, header: Header) -> None:
        """A grant has no body."""

    def take(self, header: Header, body: memoryview) -> None:
        """Take the grant."""
        if header.kind is Kind.GRANT and not self.granted.done():
            self.granted.set_result(True)

    def expecting(self) -> bool:
        """Others may come first."""
        return False

    def lost(self, error: IctError) -> None:
        """The connection has gone."""
        if not self.granted.done():
            self.granted.set_exception(error)
