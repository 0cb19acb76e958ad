"""A cheap tree from a root of which no way is longer than a radius: near in time, where the cheapest one is deep.

The cheapest tree (`arborescence`) does not look at the way of a chunk: it becomes a chain, and crosses an ocean as
often as that is cheap. The cheapest one within a radius is hard to find (NP-hard even for two hops), so this one is
grown and then mended. It grows as Prim's does, always by the cheapest edge of those that stay within the radius (Cong,
Kahng, Robins, Sarrafzadeh and Wong, "Provably good performance-driven global routing", 1992). Then each node, the
dearest first, moves with all below it to the cheapest place that is left to it: on regions of 24 that took as much as
0.1 of the bound off.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.trees import Matrix


def within(price: Matrix, ways: Matrix, root: int, radius: float) -> tuple[int, ...] | None:
    """Give the parents of a cheap tree; None if somebody was not reached within the radius.

    Args:
        price: of each edge `[source, target]`, not negative; infinite where there is none.
        ways: seconds over each edge.
        root: where the tree begins.
        radius: seconds from the root to anybody, at most.
    """
    tree = _Growing(price, ways, root, radius)
    if not tree.grow():
        return None
    tree.mend()
    return tuple(tree.parents.tolist())


def eccentricities(ways: Matrix) -> Matrix:
    """Give for each participant the seconds to, or from, the farthest of all, by the shortest ways; perhaps infinite.

    Args:
        ways: seconds over each edge `[source, target]`; infinite where there is none.
    """
    shortest = ways.copy()
    np.fill_diagonal(shortest, 0.0)
    for via in range(len(shortest)):  # Floyd and Warshall's
        np.minimum(shortest, shortest[:, via, None] + shortest[via], out=shortest)
    farthest: Matrix = np.maximum(shortest.max(axis=0), shortest.max(axis=1))
    return farthest


class _Growing:
    """A tree: who is whose parent, how far away, and below whom."""

    def __init__(self, price: Matrix, ways: Matrix, root: int, radius: float) -> None:
        self._price, self._ways, self._root, self._radius = price, ways, root, radius
        self.parents: npt.NDArray[np.intp] = np.full(len(price), root, np.intp)
        self.parents[root] = NO_PARENT
        self._away = np.zeros(len(price))
        """Seconds from the root."""
        self._below = np.eye(len(price), dtype=bool)
        """Who lies below whom, each below itself as well."""

    def grow(self) -> bool:
        """Reach everybody, if these edges lead there."""
        price, ways, away, parents = self._price, self._ways, self._away, self.parents
        out, order = np.arange(len(price)) != self._root, []
        least = np.where(out & (ways[self._root] <= self._radius), price[self._root], np.inf)
        for _ in range(len(price) - 1):
            node = int(least.argmin())
            if not np.isfinite(least[node]):
                return False
            order.append(node)
            out[node], least[node] = False, np.inf
            away[node] = away[parents[node]] + ways[parents[node], node]
            better = out & (price[node] < least) & (away[node] + ways[node] <= self._radius)
            least[better], parents[better] = price[node, better], node
        for node in reversed(order):
            self._below[parents[node]] |= self._below[node]
        return True

    def mend(self) -> None:
        """Move each node with all below it to where it is cheapest, the dearest first."""
        away, price = self._away, self._price
        paid = np.where(self.parents == NO_PARENT, -1.0, price[self.parents, np.arange(len(price))])
        order = np.argsort(-paid, kind="stable")
        for node in order[paid[order] > price.min(axis=0)[order]].tolist():
            under = self._below[node]
            further = away[under].max() - away[node]
            able = ~under & (away + self._ways[:, node] + further <= self._radius)
            to = int(np.where(able, price[:, node], np.inf).argmin())
            if able[to] and price[to, node] < paid[node]:
                self._move(node, to)

    def _move(self, node: int, to: int) -> None:
        below, under = self._below, self._below[node].copy()
        below[below[:, self.parents[node], None] & under] = False
        below[below[:, to, None] & under] = True
        self.parents[node] = to
        self._away[under] += self._away[to] + self._ways[to, node] - self._away[node]
