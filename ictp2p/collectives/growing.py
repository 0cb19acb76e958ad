"""Trees for any graph, and a proof of how far from the best they can be.

First come the trees that `schedules.tree` grows, and the stars whose links are there. The linear program over them
prices each resource; a tree that costs less than the price of a byte would make the plan faster, so the cheapest trees
at these prices are taken in, and so on (column generation). Among few participants the cheapest are found exactly
(`schedules.arborescence`), which also proves the bound; among many they are grown, as the first ones were. Prices are
smoothed, as they would else jump from one extreme to the other (Wentges 1997).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ictp2p.collectives.bounds import cheapest_at_least, price_bound
from ictp2p.collectives.packing import WORK, Packing
from ictp2p.collectives.schedules import star, tree
from ictp2p.collectives.schedules.arborescence import cheapest
from ictp2p.collectives.schedules.trees import Cost, Matrix, Tree
from ictp2p.collectives.topology import Topology

EXACT = 16
"""Up to this many participants the cheapest trees are found exactly."""
_PASSES = ((16, 12, 12), (32, 4, 4), (64, 2, 2))
"""Up to how many participants so many generations are grown, and so many of them kept; beyond, one."""
_ROUNDS = 20
_SMOOTHING = 0.7
_GOOD = 1.005
"""Within this factor of the bound nothing more is sought."""
_FRESH = 8
"""The most trees taken in at a time: the cheapest."""
_EVEN = 0.3
"""Weight of even prices when trees are grown: most resources have no price of their own, and yet are not free."""
_GAIN = 1e-4
"""A tree has to cost less than a byte's price by this share."""


class Grown(NamedTuple):
    """Trees, and the bound that they prove."""

    shallow: tuple[Tree, ...]
    """Those of few hops."""
    trees: tuple[Tree, ...]
    """All of them."""
    rates: Matrix
    """Bytes/s of each of all, when they run side by side."""
    bound: float
    """Seconds per byte below which no packing of trees comes, were nothing encoded."""


def grow(topology: Topology, cost: Cost, bound: float = 0.0) -> Grown:
    """Grow trees until they are as good as the `bound` (seconds per byte), or none would help.

    The bound returned is the larger one of that given and that proven; without any tree, it is infinite.
    """
    passes, kept = next(((passes, kept) for most, passes, kept in _PASSES if topology.size <= most), (1, 1))
    first = (*tree.trees(topology, passes, kept), *filter(topology.fits, star.trees(topology.size)))
    if not first:
        return Grown((), (), np.zeros(0), float("inf"))
    trees = dict.fromkeys(first)
    packing = Packing(topology.capacity)
    packing.add(topology.loads(list(trees), cost))
    shallow = tuple(trees)
    smoothed: Matrix | None = None
    for _ in range(_ROUNDS):
        total, prices = packing.rates().sum(), packing.prices()
        if bound * min(cost) * total * _GOOD >= 1 or packing.work >= WORK:
            break
        mild = prices if smoothed is None else _SMOOTHING * smoothed + (1 - _SMOOTHING) * prices
        found, proven = _cheapest(topology, mild)
        bound = max(bound, proven)
        priced = [(float(topology.load(one, cost) @ prices), one) for one in found if one not in trees]
        fresh = [one for price, one in sorted(priced) if price < 1 - _GAIN][:_FRESH]
        if not fresh and smoothed is None:
            break  # these were the very prices: no tree whatever is cheaper, or none is found
        smoothed = mild if fresh else None
        if fresh:
            trees |= dict.fromkeys(fresh)
            packing.add(topology.loads(fresh, cost))
    return Grown(shallow, tuple(trees), packing.rates(), bound)


def _cheapest(topology: Topology, prices: Matrix) -> tuple[list[Tree], float]:
    """Find a cheap pair of trees for each root, and the bound in seconds per byte that the prices prove."""
    edges = topology.prices(prices)
    limited = np.isfinite(topology.capacity)
    worth = float(prices[limited] @ topology.capacity[limited])
    if topology.size > EXACT:
        even = np.where(limited & (topology.capacity > 0), 1 / np.maximum(topology.capacity, 1e-300), 0.0)
        mixed = prices / worth + _EVEN * even / max(1, int(limited.sum()))
        found = tree.around(range(topology.size), topology.prices(mixed))
        return found, price_bound(worth, cheapest_at_least(edges), 1.0)
    found, costs = [], []
    for root in range(topology.size):
        down, up = cheapest(edges, root), cheapest(edges.T, root)
        if down is not None and up is not None:
            found.append(Tree(root, up[0], down[0]))
            costs.append(down[1] + up[1])
    return found, price_bound(worth, min(costs, default=float("inf")), 1.0)
