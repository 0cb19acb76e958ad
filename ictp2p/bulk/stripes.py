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

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ictp2p.bulk import tuning
from ictp2p.bulk.collective import Hold
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Header
from ictp2p.bulk.headroom import Headroom
from ictp2p.bulk.pool import Pool
from ictp2p.bulk.streams import ProbeResult
from ictp2p.bulk.users import Frame
from ictp2p.errors import ConnectionLost, IctError, NetworkError
from ictp2p.types import PeerId

COUNT = 4
"""Connections to one peer: with 2, 4 and 8 of them plain TCP filled 0.67, 0.76 and 0.74 of a Gbit/s over 100 ms, with
one 0.46."""
MOST = 16
"""Connections to one peer at most: with Linux's 4 MiB of send buffer each they carry 5 Gbit/s over 100 ms, and a core
does not seal much more."""
GAIN = 1.25
"""Times what one carries: probes of one way differ by a tenth, and what does not gain much does harm beside others."""
AGAIN = 60.0
"""Seconds after which more connections are tried again where none could be made: the first one may live for months."""
LEAST = 512 * 1024
"""Bytes of a transfer from which on it is asked: who sends less has nothing to gain."""

Measure: TypeAlias = Callable[[Sequence[BulkConnection]], Awaitable[ProbeResult]]
"""Measures what some connections carry together; raises a `NetworkError`."""


class Stripe:
    """A collective's use of one more connection (`users.User`): for chunks that the others have no room for."""

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
        clock: monotonic seconds.
    """

    def __init__(self, pool: Pool, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        self._kept: dict[PeerId, list[BulkConnection]] = {}
        self._tried: dict[PeerId, BulkConnection] = {}
        """With which first connection it was tried."""
        self._headroom: dict[PeerId, Headroom] = {}
        self._opening: set[PeerId] = set()
        """To whom connections are being made."""
        self._vain: dict[PeerId, float] = {}
        """To whom no more could be made, and until when that is not tried again."""

    def beside(self, first: BulkConnection) -> tuple[BulkConnection, ...]:
        """Name the connections that carry chunks beside the first one."""
        assert first.peer is not None
        return tuple(each for each in self._kept.get(first.peer, ()) if not each.closed)

    def has(self, peer: PeerId, connection: BulkConnection) -> bool:
        """Whether this one carries chunks to `peer`."""
        return connection in self._kept.get(peer, ())

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
        if first.peer in self._opening:
            return alone
        made: list[BulkConnection] = []
        self._opening.add(first.peer)
        try:
            while len(made) < COUNT - 1:
                made.append(await self._pool.another(first.peer))  # each at once: what fails later leaves none behind
            together = await measure((first, *made))
            if together.limited:
                return alone
            self._note_tried(first)
            if together.size / together.seconds < GAIN * alone.size / alone.seconds:
                return alone
            for each in made:
                self._keep(each)
            made = []
            self._divide(first.peer)
            return together
        except NetworkError:
            if len(made) < COUNT - 1:  # it would be as vain the next time
                self._note_tried(first)
            return alone
        finally:
            self._opening.discard(first.peer)
            for each in made:
                each.hang_up(ConnectionLost("gained nothing beside another one"))

    def lacking(self, first: BulkConnection) -> bool:
        """Whether there should be more: buffers or losses have held back what there is since it was last asked."""
        assert first.peer is not None
        beside = self.beside(first)
        if first.closed or first.relayed or self._clock() < self._vain.get(first.peer, -math.inf):
            return False
        if first.peer in self._opening or len(beside) >= MOST - 1:
            return False
        return self._headroom.setdefault(first.peer, Headroom()).lacking((first, *beside))

    async def double(self, first: BulkConnection) -> None:
        """Make as many connections again, or as many of them as can be made."""
        assert first.peer is not None
        self._opening.add(first.peer)
        try:
            for _ in range(min(1 + len(self.beside(first)), MOST - 1 - len(self.beside(first)))):
                self._keep(await self._pool.another(first.peer))
        except NetworkError:
            if not first.closed:  # else nobody would forget it: what has ended was said already
                self._vain[first.peer] = self._clock() + AGAIN  # what there is stays
        finally:
            self._opening.discard(first.peer)
            self._divide(first.peer)

    def lost(self, connection: BulkConnection) -> None:
        """Forget one that has ended: what was tried with it is tried again."""
        assert connection.peer is not None
        if connection.peer in self._headroom:
            self._headroom[connection.peer].forget(connection)
        if not self._pool.among(connection.peer):
            self._headroom.pop(connection.peer, None)
        kept = self._kept.get(connection.peer, [])
        if connection in kept:
            kept.remove(connection)
            self._tried.pop(connection.peer, None)
        if self._tried.get(connection.peer) is connection:
            del self._tried[connection.peer]
        self._vain.pop(connection.peer, None)
        if not kept:
            self._kept.pop(connection.peer, None)
        self._divide(connection.peer)

    def _note_tried(self, first: BulkConnection) -> None:
        """Do not try it again with this first one. Nobody would forget one that has ended: that was said already."""
        if first.peer is not None and not first.closed:
            self._tried[first.peer] = first

    def _keep(self, made: BulkConnection) -> None:
        """Let one carry chunks from now on, unless it has ended again: that was said already, and once only."""
        assert made.peer is not None
        if not made.closed:
            self._kept.setdefault(made.peer, []).append(made)

    def _divide(self, peer: PeerId) -> None:
        """Have many hold no more than a few: none takes chunks for long that another one could send at once."""
        first = self._pool.warm(peer)
        if first is not None:
            together = (first, *self.beside(first))
            for each in together:
                each.backlog.hold_as_one_of(len(together), COUNT)
