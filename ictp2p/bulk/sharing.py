"""How both ends of one connection come to have memory in common: what is said of it. `shared` has the memory itself.

Each direction has a ring of its own. Its sender makes it, and offers it once, with the first body that would go there:
most connections never carry one, and have none. The other end opens it, if it can, and says whether it did. Nobody
waits for that: bodies go over the connection until the answer has come, and for ever where it is no. From then on the
reader says how far it is (`Kind.FREED`), which lets a writer go on that waits for room.

All of it is the connection's own, since each end must know that the other is on this host: so no user hears of it, and
no offer passes a relay. What comes out of turn is a mistake of the other end, and ends the connection: to go on would
be to read from, or write to, memory that only one of us believes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ictp2p.bulk import kernel
from ictp2p.bulk.frames import NO_TAG, Header, Kind
from ictp2p.bulk.outbound import Outbound
from ictp2p.bulk.shared import Rings, Writer, opened
from ictp2p.bulk.users import Frame
from ictp2p.errors import RemoteProtocolError

if TYPE_CHECKING:
    from ictp2p.bulk.connection import BulkConnection


class Sharing:
    """One connection's part in it.

    Args:
        connection: its reading half is given what the other end offers.
        outbound: its writing half is given ours, once the other end has opened it.
        rings: makes memory to offer; None: share none, and take none.
    """

    def __init__(self, connection: BulkConnection, outbound: Outbound, rings: Rings | None) -> None:
        self.may_offer = rings is not None
        """Whether ours has yet to be offered."""
        self._connection: BulkConnection | None = connection
        self._outbound = outbound
        self._rings = rings
        self._offered: Writer | None = None
        """Not yet opened by the other end."""

    def offer(self) -> Frame | None:
        """Give the frame that offers our memory, once; None where that would be in vain, or there is no more of it."""
        self.may_offer = False
        if self._rings is None or not self._near() or (writer := self._rings.another()) is None:
            return None
        self._offered = writer
        return Frame(Kind.OFFER, NO_TAG, views=(writer.offer,))

    def take(self, header: Header, body: memoryview) -> None:
        """Take an offer, the answer to ours, or word of what was read.

        Raises:
            RemoteProtocolError: it does not fit to what was said before.
        """
        connection, outbound = self._connection, self._outbound
        if connection is None:
            return
        if header.kind is Kind.FREED and outbound.ring is not None:
            outbound.ring.free(header.second)
            connection.pump()
        elif header.kind is Kind.OFFER and connection.ring is None:
            connection.ring = opened(body) if self._near() else None
            connection.send(Kind.OPENED, first=connection.ring is not None)
        elif header.kind is Kind.OPENED and self._offered is not None:
            self._offered.taken()
            outbound.ring = self._offered if header.first else None
            self._offered = None
        else:
            raise RemoteProtocolError(f"{header.kind.name} out of turn")

    def end(self) -> None:
        """The connection has ended: what nobody will open is closed, whoever still knows this."""
        self._connection = self._rings = None  # in a cycle its buffers would stay until the garbage collector comes
        if self._offered is not None:
            self._offered.taken()
            self._offered = None

    def _near(self) -> bool:
        connection = self._connection
        if connection is None or self._rings is None or connection.relayed:
            return False
        return kernel.same_host(connection.transport)
