"""Which other leaders a leader stays connected to, in a mesh too large for everybody to know everybody.

Up to `complete` clusters every two leaders keep a connection: the fewest hops, and every link measured. Beyond that
connections grow with the square of the mesh, and route entries with the cube, so each leader picks few:

- two clusters on either side of it on the ring on which they also guard each other (`gossip.guards`), in the order of a
  hash of their names. These alone connect everybody, whichever three clusters fail at once: the ring of second
  neighbours is 4-connected;
- log2 N more, those whose hash together with its own is least. They make it an expander: a few hops from anybody to
  anybody, and connected with overwhelming probability though a large part fails at once (where each picks k >= 2 others
  at random, the graph is k-connected with probability 1 - o(1): Fenner and Frieze, "On the connectivity of random
  m-orientable graphs and digraphs", 1982; the tests take a third away).

Both follow from the names alone, so leaders that see the same members pick consistently, whoever asked first; and a
cluster that comes or goes changes the picks of O(log N) others. Those that nobody can dial pick, and are not picked.

Picks are made twice, over the clusters that are there and over all that ever were and did not leave: the first keeps
the living connected, the second is how two halves of a healed partition meet again.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from bisect import bisect_left
from collections.abc import Collection

from ictp2p.gossip.guards import place
from ictp2p.types import ClusterId

COMPLETE = 32
"""Clusters up to which every two leaders are connected, if nobody says otherwise."""
BESIDE = 2
"""Picks on either side of the ring."""
_HYSTERESIS = 0.75
"""A mesh that was too large is complete again below this share of the limit, and does not alternate at it."""


class Overlay:
    """The picks of one cluster.

    Args:
        me: that cluster.
        complete: clusters up to which all pick all; at least 2.
    """

    def __init__(self, me: ClusterId, complete: int = COMPLETE) -> None:
        self._me = me
        self._complete = complete
        self._sparse = False
        self._clusters = 1
        self._closeness: dict[ClusterId, bytes] = {}

    @property
    def sparse(self) -> bool:
        """Whether the mesh was too large for all to pick all when picks were last made."""
        return self._sparse

    @property
    def crowded(self) -> bool:
        """Whether the mesh had more than half of the clusters for which it is complete."""
        return 2 * self._clusters > self._complete

    def picks(self, present: Collection[ClusterId], absent: Collection[ClusterId]) -> frozenset[ClusterId]:
        """Pick neighbours.

        Args:
            present: the other clusters that are there and can be dialed.
            absent: those that died, and may be back.
        """
        self._judge(1 + len(present))
        self._remember_only({*present, *absent})
        if not self._sparse:
            return frozenset((*present, *absent))
        return self._picked(present) | (self._picked((*present, *absent)) if absent else frozenset())

    def _judge(self, clusters: int) -> None:
        self._clusters = clusters
        limit = self._complete * (_HYSTERESIS if self._sparse else 1.0)
        self._sparse = clusters > limit

    def _remember_only(self, others: Collection[ClusterId]) -> None:
        """Each job of a scheduler may be a cluster of its own: over months they are too many to remember them all."""
        if len(self._closeness) > 2 * len(others):
            self._closeness = {name: known for name, known in self._closeness.items() if name in others}

    def _picked(self, others: Collection[ClusterId]) -> frozenset[ClusterId]:
        return frozenset((*self._beside(others), *self._random(others)))

    def _beside(self, others: Collection[ClusterId]) -> list[ClusterId]:
        ring = sorted(others, key=place)
        here = bisect_left(ring, place(self._me), key=place)
        return [ring[(here + offset) % len(ring)] for offset in range(-BESIDE, BESIDE)] if ring else []

    def _random(self, others: Collection[ClusterId]) -> list[ClusterId]:
        count = math.ceil(math.log2(len(others) + 1))
        return heapq.nsmallest(count, others, key=self._distance)

    def _distance(self, other: ClusterId) -> bytes:
        known = self._closeness.get(other)
        if known is None:
            known = self._closeness[other] = _hash(min(self._me, other), max(self._me, other))
        return known


def _hash(one: str, other: str) -> bytes:
    return hashlib.blake2b(f"{one}\0{other}".encode(), digest_size=16, person=b"ictp2p overlay").digest()
