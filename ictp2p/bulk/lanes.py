"""Further connections to a peer, for as long as something large is fetched from it.

A reply travels on the connection on which it was asked for. So who fetches stripes it by asking over several, and the
peer need not know; whether that gains is `sync.state.widening`'s to find out. Those that our own chunks go over already
(`stripes`) are used, and others are made beside them.

Neither end takes one of them for the first (`reaching`), so nobody else loses one when the fetch is over.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence

from ictp2p.bulk import tuning
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.pool import Pool
from ictp2p.bulk.stripes import COUNT, MOST, Stripes
from ictp2p.errors import ConnectionLost, NetworkError
from ictp2p.types import PeerId

LONG = 20.0
"""Seconds that a fetch still has to go, from which on what costs one is worth trying."""


class Lanes:
    """Makes connections for fetches, and ends them.

    Args:
        pool: makes them.
        stripes: has some already, perhaps.
        wanted: whether there may be several connections to a peer at all.
    """

    def __init__(self, pool: Pool, stripes: Stripes, wanted: bool) -> None:
        self._pool = pool
        self._stripes = stripes
        self._wanted = wanted

    def promising(self, peer: PeerId, rate: float, seconds: float) -> bool:
        """Whether several connections to `peer` may bring more than the one that brings `rate` bytes/s.

        Not where that one has more on its way than buffers allow who may not widen them: a trial that fails costs about
        a second, until the first connection has found its rate again. Of a fetch that has many `seconds` to go that is
        little, and over a long way it is tried then: the buffer that bounds it is the other end's.
        """
        first = self._pool.warm(peer)
        if not self._wanted or first is None or first.relayed or tuning.exceeds_buffers(first.transport, rate):
            return False
        return tuning.may_gain(first.transport, rate) or (seconds >= LONG and tuning.is_far(first.transport))

    async def opened(self, peer: PeerId, used: Collection[BulkConnection]) -> AsyncGenerator[BulkConnection, None]:
        """Give one after the other, as it is made, until one cannot be: as many again as are `used`, and the first."""
        first = self._pool.warm(peer)
        if first is None:
            return
        wanted = min(max(COUNT, 2 * (1 + len(used))), MOST) - 1 - len(used)
        beside = [each for each in self._stripes.beside(first) if each not in used][:wanted]
        for each in beside:
            yield each
        for _ in range(wanted - len(beside)):
            try:
                made = await self._pool.another(peer)
            except NetworkError:
                return
            yield made

    def close(self, peer: PeerId, lanes: Sequence[BulkConnection]) -> None:
        """End those that are for nothing else by now: no stripe."""
        for each in lanes:
            if not self._stripes.has(peer, each):
                each.hang_up(ConnectionLost("what was fetched is here"))
