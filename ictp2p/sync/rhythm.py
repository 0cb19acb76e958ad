"""How often clusters take part in rounds, and so when those who are missing should come: from the decisions alone.

Two groups of clusters may have come to train out of step, after a partition between them say. Each then overtakes the
other in the middle of its phase, and whoever was overtaken is READY at once with what it carried over, long before the
others can be. If it went on without them, so would they without it, and each group would make its rounds alone and
fetch the other's state in every phase, for hours or for good. So it waits until the others, too, should be there; and
for how long that is, commits tell: who took part in one began its phase then, whatever has been committed since.

The measure is the median of the gaps between two rounds of a cluster, over all clusters in the last rounds. One cluster
that was away, and decisions that were learnt late and all at once, move it by little.
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
    """The last rounds of one kind, as one peer saw them committed."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._rounds: deque[tuple[float, frozenset[ClusterId]]] = deque(maxlen=_ROUNDS)

    def committed(self, clusters: Collection[ClusterId], now: float) -> None:
        """These brought something to a round that is committed."""
        self._rounds.append((now, frozenset(clusters)))

    def broken(self) -> None:
        """A round was missed, of which nothing is known: gaps that it lies in say nothing."""
        self._rounds.clear()

    def due(self, name: ClusterId, *, at_latest: bool = False) -> float | None:
        """When a cluster should be READY again, in seconds; None if nothing tells.

        Args:
            name: of the cluster.
            at_latest: after the longest of the gaps, not a usual one: for whoever loses nothing by waiting.
        """
        took_part = [at for at, clusters in self._rounds if name in clusters]
        gaps = self._gaps()
        if not gaps or not took_part:
            return None
        return took_part[-1] + (max(gaps) if at_latest else median_low(gaps))

    def _gaps(self) -> list[float]:
        clusters = {name for _, clusters in self._rounds for name in clusters}
        rounds = ([at for at, those in self._rounds if name in those] for name in clusters)
        return [later - earlier for times in rounds for earlier, later in pairwise(times)]
