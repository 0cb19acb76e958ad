"""Every way to make a connection to a peer: dial it; ask it over the control plane to dial us; go through a relay.

They are tried in this order, each begun a little after the one before (`ways`), and the first that works is taken; but
relays before all else where the control plane hears nothing of the peer any more, for its line is cut, most likely. It
does not matter which: both ends agree on fresh keys whichever way the bytes take (`handshake`).

What we asked for comes in by itself, among all that others dial for reasons of their own. For a first connection any
will do. One more beside it must be the very one, told by its ticket. Its maker has that for itself, and says so in its
hello, or its answer: it may end it at any time, also in the instant in which the first one breaks, so the other end
never takes it for the first, to begin something on it. One that comes when nobody waits for it any longer is ended,
since only we know that.

*Large packets.* A way may open for small packets and lose all that are full, without a word (`edge.network`). IS-IS
therefore pads its first Hellos (ISO 10589, section 8.2.3), and so do we the proof that ends a handshake, to a full
packet (`BulkConnection.secure`). Whom we dialed and who is not ready soon is dialed once more, with small packets; it
may as well have been busy, and then nothing is lost but a hundredth of the line.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ictp2p.bulk import kernel
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Purpose
from ictp2p.bulk.handshake import Handshake
from ictp2p.bulk.membership import Membership
from ictp2p.bulk.profile import BulkProfile
from ictp2p.bulk.splice import Shrink
from ictp2p.bulk.ways import first_way
from ictp2p.errors import ConnectionLost, RemoteProtocolError, Unreachable
from ictp2p.types import PeerId, shown_address

if TYPE_CHECKING:
    from ictp2p.bulk.pool import Pool

Dial: TypeAlias = Callable[[PeerId, float], Awaitable[asyncio.Transport]]
"""Connects to a peer's listener within a timeout in seconds, past the preamble; nothing behind it has been read.
Raises a `NetworkError`."""

AskDial: TypeAlias = Callable[[PeerId, bytes], None]
"""Asks a peer, over the control plane, to call `answer_ticket` with our id and this ticket. Best effort.
Raises a `NetworkError` where that would be in vain, and the next way is tried at once."""

Relays: TypeAlias = Callable[[PeerId], Sequence[PeerId]]
"""Names the peers that may lead to a peer, best first; and after them the peer itself where nothing is heard of it, so
that they are tried before it is dialed."""

_Ways: TypeAlias = list[Callable[[], Coroutine[Any, Any, BulkConnection]]]
_SOON = 0.75
"""Seconds, and `_TRIPS` round trips, from a dial's first byte until both ends are ready, if no packet was lost twice: a
kernel repeats it after a fifth of a second and a round trip, and one that was lost again after twice that."""
_TRIPS = 4
_MOST_LATE = 256
"""Tickets that are remembered once nobody waits for what answers them."""


class Reaching:
    """One peer's ways to others. What it makes is its pool's. Arguments as `Bulk`'s."""

    def __init__(
        self,
        pool: Pool,
        handshake: Handshake,
        dial: Dial,
        profile: BulkProfile,
        ask_dial: AskDial | None,
        relays: Relays,
        random_bytes: Callable[[int], bytes],
        membership: Membership,
        shrink: Shrink,
    ) -> None:
        self._pool = pool
        self._shrink = shrink
        self._handshake = handshake
        self._dial = dial
        self._profile = profile
        self._ask_dial = ask_dial
        self._relays = relays
        self._random_bytes = random_bytes
        self._membership = membership
        self._awaited: set[bytes] = set()
        """Tickets with which we ask for one more connection."""
        self._late: deque[bytes] = deque(maxlen=_MOST_LATE)
        """Those for which nobody waits any longer."""

    async def first(self, peer: PeerId) -> BulkConnection:
        """Make a connection to `peer`, to which there is none.

        Raises:
            Unreachable: no way led there, and none came in meanwhile; names each and how it failed.
        """
        direct: _Ways = [partial(self.dialed, peer)]
        if self._ask_dial is not None:
            direct.append(partial(self._asked, peer))
        named = self._relays(peer)
        around: _Ways = [partial(self._relayed, relay, peer) for relay in named if relay not in (peer, self._pool.me)]
        ways = around + direct if peer in named else direct + around
        try:
            return await first_way(ways, self._profile.patience, lambda spare: None)
        except Unreachable as error:
            if warm := self._pool.warm(peer):
                return warm
            raise Unreachable(f"no bulk connection to {peer}: {error}") from error

    async def another(self, peer: PeerId) -> BulkConnection:
        """Make one more connection to `peer`, beside those that there are, for us alone, and over no relay.

        Raises:
            NetworkError: neither of us can dial the other.
        """
        ways: _Ways = [partial(self.dialed, peer, beside=True)]
        if self._ask_dial is not None:
            ways.append(partial(self._asked_for_one_more, peer))
        return await first_way(ways, self._profile.patience, self._end_spare)

    def one_more(self, ticket: bytes) -> bool:
        """Whether it was one more connection that we asked for with `ticket`."""
        return ticket in self._awaited or ticket in self._late

    def came(self, connection: BulkConnection) -> None:
        """End a connection that has just become ready, if it answers a ticket for which nobody waits any longer."""
        if connection.ticket in self._late:
            self._late.remove(connection.ticket)
            self._end_spare(connection)

    async def answer(self, peer: PeerId, ticket: bytes) -> None:
        """Dial `peer`, which asked for it with `ticket`: the same way, from its other end.

        Raises:
            RemoteProtocolError: that is no ticket.
            NetworkError: it cannot be dialed from here either.
            PeerClosed: this peer was closed.
        """
        if len(ticket) != 16:
            raise RemoteProtocolError(f"ticket of {len(ticket)} bytes from {peer}, expected 16")
        hello = self._handshake.hello(Purpose.TICKET, peer, ticket=ticket)
        self._pool.begin(await self._dial(peer, self._profile.handshake), hello)

    async def dialed(self, peer: PeerId, *, beside: bool = False) -> BulkConnection:
        """Dial `peer`, and once more if its large packets, or ours, seem to be lost; raises a `NetworkError`."""
        hello = partial(self._handshake.hello, Purpose.DIRECT, peer, beside=beside)
        transport = await self._dial(peer, self._profile.handshake)
        host = shown_address(transport.get_extra_info("peername")).host
        soon = min(_SOON + _TRIPS * kernel.least_trip(transport), self._profile.handshake / 2)
        try:
            return await self._pool.greet(transport, hello(), soon)
        except TimeoutError:
            self._shrink(host)
        transport = await self._dial(peer, self._profile.handshake)
        return await self._pool.greet(transport, hello())

    async def _asked(self, peer: PeerId) -> BulkConnection:
        """Have `peer` dial us, and take whatever comes from it first, or has come while we dialed it in vain."""
        assert self._ask_dial is not None
        if warm := self._pool.warm(peer):
            return warm
        self._ask_dial(peer, self._random_bytes(16))
        try:
            async with asyncio.timeout(self._profile.handshake):
                while (warm := self._pool.warm(peer)) is None:  # what comes may be one that it has for itself
                    await self._pool.arrival(peer, self._profile.handshake)
            return warm
        except TimeoutError:
            raise Unreachable(f"{peer} did not dial us within {self._profile.handshake:g} s") from None

    async def _asked_for_one_more(self, peer: PeerId) -> BulkConnection:
        """As `_asked`, but take none that does not answer our ticket."""
        assert self._ask_dial is not None
        ticket, made = self._random_bytes(16), None
        self._ask_dial(peer, ticket)
        self._awaited.add(ticket)
        try:
            async with asyncio.timeout(self._profile.handshake):
                while made is None:
                    await self._pool.arrival(peer, self._profile.handshake)
                    made = self._what_answers(peer, ticket)
            return made
        except TimeoutError:
            raise Unreachable(f"{peer} did not dial us once more within {self._profile.handshake:g} s") from None
        finally:
            self._awaited.remove(ticket)
            if made is None:
                self._not_wanted(peer, ticket)

    def _not_wanted(self, peer: PeerId, ticket: bytes) -> None:
        """End what answers a ticket once it comes; at once if it came in the moment in which it was given up."""
        came = self._what_answers(peer, ticket)
        if came is None:
            self._late.append(ticket)
        else:
            self._end_spare(came)

    def _what_answers(self, peer: PeerId, ticket: bytes) -> BulkConnection | None:
        return next((each for each in self._pool.among(peer) if each.ticket == ticket), None)

    async def _relayed(self, relay: PeerId, peer: PeerId) -> BulkConnection:
        """Have `relay` lead to `peer`."""
        transport = await self._dial(relay, self._profile.handshake)
        return await self._pool.greet(transport, self._membership.proven(self._handshake.hello(Purpose.RELAY, peer)))

    def _end_spare(self, connection: BulkConnection) -> None:
        """End one for which nobody waits any more: nothing began on it."""
        connection.hang_up(ConnectionLost("no longer wanted"))
