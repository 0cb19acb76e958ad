"""Whether the other end of a connection still lives: what is looked at, and how often, while anybody uses it.

A connection says nothing of a peer that was stopped, or of a line that was cut: TCP tries again for a quarter of an
hour. A deadline on each transfer would say it, but not whose fault it is: a peer that is slow, or itself waits for a
third one, would be given up with the dead. So both ends say `ALIVE` in pauses, and a `Watch` ends the connection when
no byte moved for the stall deadline although one was due, in either direction. Who keeps talking is never blamed.

What the other end takes is what its kernel acknowledges: ours takes more only once it has much room, and a slow line
may need longer than the deadline for that (as in `splice`). Where bodies go through memory that both ends share, the
kernel acknowledges their headers whatever becomes of them; then what was used of that memory counts.

A relay before a slow line may take nothing for longer still: it reads on only once much of what it holds has left, and
its kernel opens a window that was closed only for a sixteenth of its buffer. While it has no room, who is behind it is
slow if it talks, and dead if not: whoever talks also reads. Where packets are lost before a relay, that has room.

Where the link to the other end counts as lost (`distrust`), its line may be cut, and there may be a way around it.
Where another leads its cluster in its place, it may have died, and the others can go on with that one. Then a quarter
of the deadline is enough, if the other end's kernel shows no more of itself than its process: nothing came, and nothing
that we sent was acknowledged. A process that was stopped, or gets no time, has a kernel that acknowledges, and no way
around it would lead anywhere; a kernel without room does not, and is no cut line either.

Some looks in a deadline are all it costs: nothing here is called for a frame. Each look also tells the kernel what has
changed since the last one (`tuning`). A connection that nobody uses is not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ictp2p.bulk import kernel
from ictp2p.bulk.frames import Kind
from ictp2p.bulk.outbound import Outbound
from ictp2p.bulk.pacing import Watch
from ictp2p.bulk.renewal import Renewal
from ictp2p.bulk.users import User
from ictp2p.bulk.wakeups import Wakeups
from ictp2p.errors import ConnectionLost

if TYPE_CHECKING:
    from ictp2p.bulk.connection import BulkConnection


class Liveness:
    """Looks after one connection.

    Args:
        connection: says `ALIVE`, and is ended if the other end has stalled.
        outbound: its writing half.
        wakeups: of its reading half, which are for every byte again where none has come since the last look.
        renewal: told while bytes wait to leave, for where a line is slow there may be no frame to tell it of.
        users: who sends on it, as it is at each look.
        stall: deadline in seconds, as `BulkProfile.stall`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        connection: BulkConnection,
        outbound: Outbound,
        wakeups: Wakeups,
        renewal: Renewal,
        users: Collection[User],
        stall: float,
        clock: Callable[[], float],
    ) -> None:
        self.awake = False
        """Whether there will be another look."""
        self.heeding: dict[User, None] = {}
        """Who is sent to on this connection, and sends on another one."""
        self.speaking: dict[bytes, None] = {}
        """The other end's tags for which we say that we are here, though nobody here uses the connection for them."""
        self._connection: BulkConnection | None = connection
        self._outbound = outbound
        self._wakeups = wakeups
        self._renewal = renewal
        self._users = users
        self._stall = stall
        self._clock = clock
        self._watch = Watch(stall)
        self._timer: asyncio.TimerHandle | None = None
        self._heard = self._looked = clock()
        self._written = self._received = self._acknowledged = 0
        """At the last look."""
        self._distrusted = False
        """Whether the other end is in doubt elsewhere, and nothing was heard of it here since that was said."""
        self._dark = 0
        """Looks in a row at which nothing had come, and nothing of what we sent been acknowledged."""

    @property
    def standing(self) -> bool:
        """Whether nothing had moved for a while, although something was due, when it was last looked at."""
        return self.awake and self._watch.standing

    @property
    def silence(self) -> float:
        """Seconds before the last look in which nothing came while anybody used the connection."""
        return self._looked - self._heard

    def begin(self) -> None:
        """Look from now on, until nobody uses the connection any more, nor we speak on it."""
        if not self.awake and self._connection is not None:
            self.awake = True
            self._heard = self._looked = self._clock()
            self._watch = Watch(self._stall)
            self._distrusted, self._dark = False, 0
            self._written, self._received = self._outbound.written, self._connection.received
            self._wait(self._connection)

    def distrust(self) -> None:
        """Have less patience: the other end is in doubt elsewhere. Anything that comes takes that back."""
        self._distrusted = True

    def look(self) -> None:
        """Say that we are here, unless that was seen, and end the connection if the other end has stalled."""
        connection, users = self._connection, (*self._users, *self.heeding)
        if connection is None or not (users or self.speaking):
            self.awake = False
            return
        unacknowledged = kernel.unacknowledged(connection.transport)
        acknowledged = connection.flushed - unacknowledged
        pending, taken = self._taken(acknowledged)
        self._heed(connection.received, acknowledged, outstanding=unacknowledged > 0)
        expecting = any(user.expecting() for user in users)
        due = pending and not self._waits_for_relay(connection)
        stalled = self._watch.check(connection.received, taken, expecting=expecting, pending=due)
        if stalled or (stalled := self._cut(connection)):
            connection.fail(ConnectionLost(stalled))
            return
        if pending:
            self._renewal.sent(self._clock())
        looked, self._looked = self._looked, self._clock()
        if connection.received != self._received:
            self._heard = self._looked
        else:
            self._wakeups.relax()
            if not users:  # nothing need come: what was silent before stays so, and no longer
                self._heard += self._looked - looked
        self._received = connection.received
        if self._outbound.written == self._written:
            connection.send(Kind.ALIVE)
        self._written = self._outbound.written
        self._wait(connection)

    def end(self) -> None:
        """The connection has ended: nobody is looked after."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._connection = None  # in a cycle its buffers would stay until the garbage collector comes
        self.heeding.clear()
        self.speaking.clear()

    def _wait(self, connection: BulkConnection) -> None:
        connection.backlog.refill()
        self._timer = asyncio.get_running_loop().call_later(self._watch.interval, self.look)

    def _heed(self, received: int, acknowledged: int, *, outstanding: bool) -> None:
        """Note whether anything came, or was acknowledged, since the last look; `outstanding`: not all has been."""
        came = received != self._received
        dark = outstanding and not came and acknowledged == self._acknowledged
        self._dark, self._acknowledged = self._dark + 1 if dark else 0, acknowledged
        self._distrusted = self._distrusted and not came

    def _cut(self, connection: BulkConnection) -> str | None:
        """Say so if the line is cut, or its other end dead: it is in doubt, and nothing is seen of its kernel here."""
        if not self._distrusted or self._dark < Watch.FEW or kernel.is_full(connection.transport):
            return None
        return f"acknowledged nothing for {Watch.FEW * self._watch.interval:g} s, and is in doubt elsewhere"

    def _waits_for_relay(self, connection: BulkConnection) -> bool:
        """Say whether a relay has no room for what we send, and passes on what the other end says."""
        return connection.relayed and connection.received != self._received and kernel.is_full(connection.transport)

    def _taken(self, acknowledged: int) -> tuple[bool, int]:
        """Say whether the other end has something to take, and give a count of bytes that grows as it does."""
        ring = self._outbound.ring
        if ring is not None and ring.crowded():  # its kernel takes the headers, whatever becomes of the bodies
            return True, ring.freed
        return self._outbound.pending > 0, acknowledged
