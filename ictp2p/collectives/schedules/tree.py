"""Trees grown over whatever links there are, priced by load: what is left when stars and rings do not fit.

A tree from each root is grown as Prim does, always by the cheapest edge, but no deeper than `DEPTH`; without the cap
such trees became chains of 24 hops. An edge's price rises exponentially with the load that earlier trees put on it, so
that a set of trees spreads over the graph (the multiplicative-weights view of packing arborescences). How much
of the vector each tree carries is then decided by one linear program, in the planner.
"""

from __future__ import annotations

import math

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
    size = len(price)
    parents, depth = [NO_PARENT] * size, {root: 0}
    while len(depth) < size:
        cheapest = min(
            (float(price[source, target]), source, target)
            for source in sorted(depth)
            for target in range(size)
            if target not in depth
        )
        reachable = [
            (float(price[source, target]), source, target)
            for source in sorted(depth)
            if depth[source] < limit
            for target in range(size)
            if target not in depth
        ]
        cost, source, target = min(reachable, default=(math.inf, *cheapest[1:]))
        if not math.isfinite(cost):
            return None
        parents[target], depth[target] = source, depth[source] + 1
    return tuple(parents)
