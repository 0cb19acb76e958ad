"""Several connections to one peer, where one does not fill the way to it.

What one TCP connection carries is bounded by more than the line: by the windows that the host allows it (Linux's 4 MiB
of send buffer are 300 Mbit/s over 100 ms), by the round trips in which it searches for its rate, by losses where bbr is
lacking (Mathis et al., CCR 27 (1997), 67), and in clouds by a limit for each flow. Several carry more of it then, and
where the line itself is the bound they only push each other, and others, aside. So whether a way gains is measured.
Once a probe has shown what one connection carries, another one goes over `COUNT` of them at once, if there is reason to
think that more may help (`tuning.may_gain`), and they stay if it shows `GAIN` times as much.

A collective sends over all of them. Each takes the next chunk when it has room, so whichever is faster carries more,
and chunks overtake each other (`exchange`). The first one has all else: what is said, and whatever is small. Each end
stripes what it sends, over connections that it made itself, and so may end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ictp2p.bulk import tuning
from ictp2p.bulk.collective import Hold
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Header
from ictp2p.bulk.pool import Pool
from ictp2p.bulk.streams import ProbeResult
from ictp2p.bulk.users import Frame
from ictp2p.errors import ConnectionLost, IctError, NetworkError
from ictp2p.types import PeerId

COUNT = 4
"""Connections to one peer: with 2, 4 and 8 of them plain TCP filled 0.67, 0.76 and 0.74 of a Gbit/s over 100 ms, with
one 0.46."""
GAIN = 1.25
"""Times what one carries: probes of one way differ by a tenth, and what does not gain much does harm beside others."""
LEAST = 512 * 1024
"""Bytes of a transfer from which on it is asked: who sends less has nothing to gain."""

Measure: TypeAlias = Callable[[Sequence[BulkConnection]], Awaitable[ProbeResult]]
"""Measures what some connections carry together; raises a `NetworkError`."""


class Stripe:
    """A collective's use of one more connection (`connection.User`): for chunks that the others have no room for."""

    def __init__(self, hold: Hold, connection: BulkConnection) -> None:
        self.connection = connection
        self._hold = hold

    def next_frame(self) -> Frame | None:
        """Pull the next chunk; none before the peer has begun, for what goes ahead of that goes behind our word."""
        return None if self._hold.inbound is None else self._hold.next_frame()

    def place(self, header: Header) -> None:
        """What arrives is the hold's own."""
        return

    def take(self, header: Header, body: memoryview) -> None:
        """As `place`."""

    def expecting(self) -> bool:
        """The peer need say nothing here."""
        return False

    def lost(self, error: IctError) -> None:
        """The hold is told."""


class Stripes:
    """Which connections to each peer carry chunks beside the first one.

    Args:
        pool: makes them.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._kept: dict[PeerId, list[BulkConnection]] = {}
        self._tried: dict[PeerId, BulkConnection] = {}
        """With which first connection it was tried."""

    def beside(self, first: BulkConnection) -> tuple[BulkConnection, ...]:
        """Name the connections that carry chunks beside the first one."""
        assert first.peer is not None
        return tuple(each for each in self._kept.get(first.peer, ()) if each is not first and not each.closed)

    def promising(self, first: BulkConnection, rate: float) -> bool:
        """Whether more may carry more than this one, seen at `rate` bytes/s; tried once for each first connection."""
        assert first.peer is not None
        if first.closed or first.relayed or self._tried.get(first.peer) is first or self.beside(first):
            return False
        return tuning.may_gain(first.transport, rate)

    async def compared(self, first: BulkConnection, alone: ProbeResult, measure: Measure) -> ProbeResult:
        """Measure several, after one `alone`; keep them if they gain. Give what is true of what is kept.

        That it fails is no news: one connection was measured. For want of time it is tried again with another probe,
        for want of a way with another first connection.
        """
        assert first.peer is not None
        made: list[BulkConnection] = []
        try:
            while len(made) < COUNT - 1:
                made.append(await self._pool.another(first.peer))  # each at once: what fails later leaves none behind
            together = await measure((first, *made))
            if together.limited:
                return alone
            self._tried[first.peer] = first
            if together.size / together.seconds < GAIN * alone.size / alone.seconds:
                return alone
            self._kept[first.peer], made = made, []
            return together
        except NetworkError:
            if len(made) < COUNT - 1:  # it would be as vain the next time
                self._tried[first.peer] = first
            return alone
        finally:
            for each in made:
                each.hang_up(ConnectionLost("gained nothing beside another one"))

    def lost(self, connection: BulkConnection) -> None:
        """Forget one that has ended: with the next probe it is tried again."""
        assert connection.peer is not None
        kept = self._kept.get(connection.peer, [])
        if connection in kept:
            kept.remove(connection)
            self._tried.pop(connection.peer, None)
        if self._tried.get(connection.peer) is connection:
            del self._tried[connection.peer]
        with contextlib.suppress(KeyError):
            if not kept:
                del self._kept[connection.peer]
