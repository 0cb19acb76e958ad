"""Trees grown over whatever edges there are, priced by load: what is left when stars and rings do not fit.

A tree from each root is grown as Prim does, always by the cheapest edge, but no deeper than `DEPTH`; without the cap
such trees became chains of 24 hops. The price of a resource rises exponentially with the load that earlier trees put on
it, so that a set of trees spreads over the graph (the multiplicative-weights view of packing arborescences). How much
of the vector each tree carries is then decided by one linear program, in the planner.

Trees of several roots are grown at the same prices and in the same NumPy operations: among 64 participants that is a
third of the time for nearly the same trees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.trees import WHOLE, Matrix, Tree
from ictp2p.collectives.planning.topology import Topology

DEPTH = 4
_STEEPNESS = 12.0
_ALONE = 8
"""Up to this many participants each tree is grown at prices of its own; beyond, so many batches in a pass."""


def trees(topology: Topology, passes: int, kept: int) -> tuple[Tree, ...]:
    """Grow `passes` generations of trees, one from each root that reaches everybody; give the last `kept` of them.

    The prices settle with time, so that later trees fit together better. Empty if no root reaches everybody.
    """
    load = np.zeros_like(topology.capacity)
    generations: list[dict[Tree, None]] = []
    for _ in range(passes):
        grown: dict[Tree, None] = {}
        for batch in range(min(_ALONE, topology.size)):
            price = topology.prices(_price(load, topology.capacity))
            found = around(range(batch, topology.size, _ALONE), price)
            grown |= dict.fromkeys(found)
            if found:
                load += topology.loads(found, WHOLE).sum(axis=1)
        generations.append(grown)
    return tuple(dict.fromkeys(tree for grown in generations[-kept:] for tree in grown))


def around(roots: Sequence[int], price: Matrix) -> list[Tree]:
    """Grow a pair of trees from each of the roots by the `price` of each edge; none from one that is not connected."""
    upward, downward = price.T.tolist(), price.tolist()
    both = ((root, _grow(upward, root), _grow(downward, root)) for root in roots)
    return [Tree(root, up, down) for root, up, down in both if up is not None and down is not None]


def _price(load: Matrix, capacity: Matrix) -> Matrix:
    """Price a resource by the inverse of its capacity and its load against the most loaded one."""
    relative = np.divide(load, capacity, out=np.zeros_like(load), where=capacity > 0)
    peak = float(relative.max()) or 1.0
    priced: Matrix = np.exp(_STEEPNESS * (relative / peak - 1)) / np.maximum(capacity, 1e-300)
    return priced


def _grow(rows: Sequence[Sequence[float]], root: int) -> tuple[int, ...] | None:
    """Grow one tree away from the root, within `DEPTH`, or deeper where there is no other way."""
    return _grow_within(rows, root, DEPTH) or (_grow_within(rows, root, len(rows)) if len(rows) > DEPTH else None)


def _grow_within(rows: Sequence[Sequence[float]], root: int, limit: int) -> tuple[int, ...] | None:
    """Prim's algorithm; whoever is `limit` hops from the root offers nothing further. Ties: the lowest index."""
    size = len(rows)
    parents, depths = [NO_PARENT] * size, [0] * size
    offers, givers = [math.inf] * size, [root] * size
    outside = [node for node in range(size) if node != root]
    added = root
    while outside:
        if depths[added] < limit:
            row = rows[added]
            for node in outside:
                if row[node] < offers[node]:
                    offers[node], givers[node] = row[node], added
        added = min(outside, key=offers.__getitem__)
        if offers[added] == math.inf:
            return None
        outside.remove(added)
        parents[added] = givers[added]
        depths[added] = depths[givers[added]] + 1
    return tuple(parents)
