"""How long clusters train between two rounds, and so when those who are missing should come.

Two groups of clusters may have come to train out of step, after a partition between them say. Each then overtakes the
other in the middle of its phase, and whoever was overtaken is READY at once with what it carried over, long before the
others can be. If it went on without them, so would they without it, and each group would make its rounds alone and
fetch the other's state in every phase, for hours or for good. So it waits until the others, too, should be there; and
for how long that is, their own last rounds tell: who took part in one began its phase then, whatever has been committed
since, and whether it brought anything to it or looked on.

A phase is what lies between a cluster's round and its next READY. In the gap between two rounds of it there is waiting
as well, and who waited as long as a gap would wait longer each time. Gaps count only as long as no phase was seen: by
somebody who has just begun to coordinate, to whom alone clusters say that they are READY. The measure is the median
over all clusters: one that is slower, or was away, moves it by little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import pairwise
from statistics import median_low

from ictp2p.types import ClusterId

_ROUNDS = 8
"""Rounds that are remembered: enough for a measure, few enough to follow phases that change."""


class Rhythm:
    """The last rounds of one kind, as one peer saw them committed, and phases, as it saw them end."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._rounds: deque[tuple[float, frozenset[ClusterId]]] = deque(maxlen=_ROUNDS)
        """When each was committed, and who brought something to it."""
        self._watched: deque[tuple[float, frozenset[ClusterId]]] = deque(maxlen=_ROUNDS)
        """The same of those who looked on."""
        self._phases: dict[tuple[ClusterId, float], float] = {}
        """Seconds, by whose it was and when it began."""

    def committed(self, clusters: Collection[ClusterId], now: float) -> None:
        """These brought something to a round that is committed."""
        self._rounds.append((now, frozenset(clusters)))
        oldest = self._rounds[0][0]
        self._phases = {phase: seconds for phase, seconds in self._phases.items() if phase[1] >= oldest}

    def watched(self, clusters: Collection[ClusterId], now: float) -> None:
        """These looked on at a round that is committed: their phases begin, too, if they have any."""
        self._watched.append((now, frozenset(clusters)))

    def came(self, name: ClusterId, now: float) -> None:
        """A cluster is READY, and brings something; the first time since its last round counts."""
        began = self._began(name)
        if began is not None:
            self._phases.setdefault((name, began), now - began)

    def broken(self) -> None:
        """A round was missed, of which nothing is known: gaps that it lies in say nothing."""
        self._rounds.clear()
        self._watched.clear()
        self._phases.clear()

    def due(self, name: ClusterId, *, at_latest: bool = False, patience: float = 1.0) -> float | None:
        """When a cluster should be READY again, in seconds on the clock; None if nothing tells.

        Args:
            name: of the cluster.
            at_latest: after the longest phase, not a usual one: for whoever loses nothing by waiting.
            patience: how many times that.
        """
        began = self._began(name)
        known = [*self._phases.values()] or self._gaps()
        if began is None or not known:
            return None
        return began + patience * (max(known) if at_latest else median_low(known))

    def _began(self, name: ClusterId) -> float | None:
        kinds = (self._rounds, self._watched)
        last = [next((at for at, clusters in reversed(kind) if name in clusters), None) for kind in kinds]
        return max((at for at in last if at is not None), default=None)

    def _gaps(self) -> list[float]:
        clusters = {name for _, clusters in self._rounds for name in clusters}
        rounds = ([at for at, those in self._rounds if name in those] for name in clusters)
        return [later - earlier for times in rounds for earlier, later in pairwise(times)]
