"""Trees grown over whatever links there are, priced by load: what is left when stars and rings do not fit.

A tree from each root is grown as Prim does, always by the cheapest edge, but no deeper than `DEPTH`; without the cap
such trees became chains of 24 hops. An edge's price rises exponentially with the load that earlier trees put on it, so
that a set of trees spreads over the graph (the multiplicative-weights view of packing arborescences). How much
of the vector each tree carries is then decided by one linear program, in the planner.
"""

from __future__ import annotations

import numpy as np

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.schedules.trees import Matrix, Tree

DEPTH = 4
_STEEPNESS = 12.0


def trees(width: Matrix, passes: int) -> tuple[Tree, ...]:
    """Grow `passes` generations of trees, one from each root that reaches everybody; empty if no root does."""
    size = len(width)
    load = np.zeros_like(width)
    grown: dict[Tree, None] = {}
    for _ in range(passes):
        for root in range(size):
            down = _grow(_price(width, load), root)
            up = _grow(_price(width, load).T, root)
            if down is None or up is None:
                continue
            tree = Tree(root, up, down)
            load += tree.load()
            grown[tree] = None
    return tuple(grown)


def _price(width: Matrix, load: Matrix) -> Matrix:
    """Price an edge by the inverse of its width and its load against the most loaded edge; no edge, no price."""
    relative = np.divide(load, width, out=np.zeros_like(load), where=width > 0)
    peak = float(relative.max()) or 1.0
    return np.where(width > 0, np.exp(_STEEPNESS * (relative / peak - 1)) / np.maximum(width, 1e-300), np.inf)


def _grow(price: Matrix, root: int) -> tuple[int, ...] | None:
    """Grow one tree away from `root`, within `DEPTH`, or deeper where there is no other way."""
    size = len(price)
    return _grow_within(price, root, min(DEPTH, size)) or _grow_within(price, root, size)


def _grow_within(price: Matrix, root: int, limit: int) -> tuple[int, ...] | None:
    """Prim's algorithm; whoever is `limit` hops from the root offers nothing further. Ties: the lowest index."""
    size = len(price)
    parents, depth = [NO_PARENT] * size, [0] * size
    offer, giver = np.full(size, np.inf), np.zeros(size, np.int64)
    outside = np.ones(size, bool)
    added = root
    for _ in range(size - 1):
        outside[added] = False
        if depth[added] < limit:
            better = outside & (price[added] < offer)
            offer[better], giver[better] = price[added][better], added
        added = int(np.argmin(np.where(outside, offer, np.inf)))
        if not outside[added] or not np.isfinite(offer[added]):
            return None
        parents[added] = int(giver[added])
        depth[added] = depth[parents[added]] + 1
    return tuple(parents)
