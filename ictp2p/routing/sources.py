"""The source table: how near each destination ever was, which is what keeps the mesh free of loops.

For every route that it advertises, a router remembers the best distance that it ever advertised, the
*feasibility distance*. It uses a neighbour's offer only if the offer is strictly better than that (RFC 8966
§3.5.1, after Garcia-Luna-Aceves' DUAL). Then along every chain of next hops the feasibility distances strictly
decrease, and a chain that decreases cannot close, at any instant, whatever was lost or late on the way.

Strictness is the whole point: with "no worse" two routers at equal distance may choose each other.

The router-id of RFC 8966 is the destination itself here: a cluster is announced by itself alone. With the
incarnation in the high half of a sequence number a cluster that restarts is always fresher than its past.
"""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.routing.algebra import INFINITY, Distance
from ictp2p.routing.messages import Key


class SourceTable:
    """Feasibility distances by destination and class."""

    def __init__(self, lifetime: float) -> None:
        self.lifetime = lifetime
        """Seconds for which what was taken back is remembered."""
        self._distances: dict[Key, Distance] = {}
        self._advertised: dict[Key, float] = {}

    def distance(self, key: Key) -> Distance | None:
        """The feasibility distance of a route, if it was ever advertised (and not long ago)."""
        return self._distances.get(key)

    def feasible(self, key: Key, offer: Distance) -> bool:
        """Say whether taking this offer can close no loop. Retractions always are feasible."""
        if offer.metric >= INFINITY:
            return True
        mine = self._distances.get(key)
        return mine is None or offer.better_than(mine)

    def advertise(self, key: Key, told: Distance, now: float) -> None:
        """Note a finite distance that is about to be told to a neighbour (RFC 8966 §3.7.3)."""
        mine = self._distances.get(key)
        if mine is None or told.better_than(mine):
            self._distances[key] = told
        self._advertised[key] = now

    def retract(self, key: Key, now: float) -> None:
        """Note that a route is being taken back: from here on its advertisement is only a memory of others'."""
        if key in self._advertised:
            self._advertised[key] = now

    def expire(self, now: float, stands: Callable[[Key], bool]) -> None:
        """Forget what was taken back a lifetime ago: no neighbour can still be using it.

        Args:
            now: seconds.
            stands: whether what was told of a route was never taken back. Neighbours then may hold it for as long as
                they are neighbours, though it was told once and long ago, and so must we.
        """
        for key in [key for key, told in self._advertised.items() if now - told >= self.lifetime]:
            if not stands(key):
                del self._distances[key], self._advertised[key]
