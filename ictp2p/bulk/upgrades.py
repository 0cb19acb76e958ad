"""Back from a relay to a connection of two peers' own, once there is a way between them again.

A connection over a relay is made where none other works: the line is cut, or nobody can dial the other. It stands for
as long as its relay does, so a pair whose line was cut for a minute sent over the relay ever after: twice the bytes on
the relay's lines, where plans count on the pair's own. So whoever is about to use such a connection dials the other
peer as well, beside what goes on, as ICE goes on checking for a better pair of addresses (RFC 8445). Pauses double, so
a cut is found to be over in about as long again as it lasted, and who can never be dialed is dialed every ten minutes.
Nobody is asked to dial us: both ends use the connection, so whoever can dial will.

A direct connection that becomes ready supersedes relayed ones, for it proves the way in both directions; and at both
ends, for both see it become ready. An older one proves nothing: while a line is being cut it stands there, dead. What
is superseded comes last, and ends once it is surely over at the other end too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakKeyDictionary

from ictp2p.bulk.connection import BulkConnection
from ictp2p.concurrency.tasks import Tasks
from ictp2p.errors import ConnectionLost, IctError
from ictp2p.types import PeerId

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Seconds from when a relayed connection is ready, or since the last attempt, until the next attempt."""


class Upgrades:
    """Looks for direct ways to peers that are reached over relays, and lets relays go that are not needed any more.

    Args:
        dial: makes a direct connection, or raises an `IctError`.
        clock: monotonic seconds.
        stall: seconds in which the other end has seen a direct connection become ready, and left the relayed one.
    """

    def __init__(
        self, dial: Callable[[PeerId], Awaitable[BulkConnection]], clock: Callable[[], float], stall: float
    ) -> None:
        self._dial = dial
        self._clock = clock
        self._stall = stall
        self._due: WeakKeyDictionary[BulkConnection, tuple[float, float]] = WeakKeyDictionary()
        """For each relayed connection in use when the next attempt is due, and the pause before it."""
        self._superseded: dict[BulkConnection, tuple[float, int]] = {}
        """Since when nothing has come over each of them, and how many bytes had before."""
        self._tasks = Tasks()

    def used(self, first: BulkConnection) -> None:
        """Note that something is about to begin on the `first` connection to a peer."""
        if first.relayed:
            self._look(first)
        for each in tuple(self._superseded):
            self._let_go(each)

    def ready(self, made: BulkConnection, kept: Sequence[BulkConnection]) -> None:
        """Note that a connection is ready; `kept` are all to that peer."""
        if made.relayed or made.beside:
            return
        for each in kept:
            if each.relayed:
                each.superseded = True
                self._superseded[each] = self._clock(), each.received

    def lost(self, kept: Sequence[BulkConnection]) -> None:
        """Note that a connection has ended; `kept` are those to that peer which are left."""
        if all(each.relayed or each.beside for each in kept):
            for each in kept:
                each.superseded = False  # it may be the last way
                self._superseded.pop(each, None)

    async def close(self) -> None:
        """Make no connections any more."""
        await self._tasks.end()

    def _look(self, relayed: BulkConnection) -> None:
        now = self._clock()
        due, pause = self._due.get(relayed, (relayed.ready_at + FIRST_PAUSE, FIRST_PAUSE))
        if now >= due and relayed.peer is not None:
            pause = min(2 * pause, LONGEST_PAUSE)
            due = now + pause
            self._tasks.spawn(self._try(relayed.peer))
        self._due[relayed] = due, pause

    async def _try(self, peer: PeerId) -> None:
        with contextlib.suppress(IctError, TimeoutError):  # then all is as before
            await self._dial(peer)

    def _let_go(self, relayed: BulkConnection) -> None:
        """End what nobody uses, and over which nothing has come for so long that nobody does at the other end."""
        since, received = self._superseded[relayed]
        if relayed.closed:
            del self._superseded[relayed]
        elif not relayed.idle or relayed.received != received:
            self._superseded[relayed] = self._clock(), relayed.received
        elif self._clock() - since >= self._stall:
            del self._superseded[relayed]
            relayed.hang_up(ConnectionLost("there is a direct way again"))
