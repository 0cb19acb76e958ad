"""Trees for any graph, and a proof of how far from the best they can be.

First come the trees that `schedules.tree` grows, and the stars whose links are there. The linear program over them
prices each resource; a tree that costs less than the price of a byte would make the plan faster, so the cheapest trees
at these prices (`schedules.arborescence`) are taken in, and so on (column generation). Among few participants they are
sought around every root, which also proves the bound; among many around a few roots at a time, in turn, for trees of
different roots hardly differ in price. Growing the later trees as the first ones were, by a heuristic, was quicker, and
ended a third above the bound where regions are joined by narrow lines: such trees do not look ahead to what entering
a region by this participant will cost. Prices are smoothed, as they would else jump from one extreme to the other
(Wentges 1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ictp2p.collectives.planning.bounds import cheapest_at_least, price_bound
from ictp2p.collectives.planning.packing import WORK, Packing
from ictp2p.collectives.planning.schedules import star, tree
from ictp2p.collectives.planning.schedules.arborescence import cheapest
from ictp2p.collectives.planning.schedules.trees import Cost, Matrix, Tree
from ictp2p.collectives.planning.topology import Topology

EXACT = 16
"""Up to this many participants the cheapest trees of all roots are sought."""
_ROOTS = 4
"""Around how many roots they are sought at a time where there are more."""
_PASSES = ((16, 12, 12), (32, 4, 4), (64, 2, 2))
"""Up to how many participants so many generations are grown, and so many of them kept; beyond, one."""
_ROUNDS = 20
_SMOOTHING = 0.7
_GOOD = 1.005
"""Within this factor of the bound nothing more is sought."""
_ENOUGH = 1.02
"""The same, if good trees were known to begin with: then hundreds of links bind, and each step costs more."""
_FRESH = 8
"""The most trees taken in at a time: the cheapest."""
_EVEN = 0.01
"""Weight of even prices beside those found: most resources have no price of their own, and yet are not free."""
_GAIN = 1e-4
"""A tree has to cost less than a byte's price by this share."""


class Grown(NamedTuple):
    """Trees, and the bound that they prove."""

    shallow: tuple[Tree, ...]
    """Those of few hops that were grown here."""
    trees: tuple[Tree, ...]
    """All of them."""
    rates: Matrix
    """Bytes/s of each of all, when they run side by side."""
    bound: float
    """Seconds per byte below which no packing of trees comes, were nothing encoded."""


def grow(topology: Topology, cost: Cost, bound: float = 0.0, known: Sequence[Tree] = ()) -> Grown:
    """Grow trees until they are as good as the `bound` (seconds per byte), or none would help.

    The bound returned is the larger one of that given and that proven; without any tree, it is infinite.

    Args:
        topology: what limits.
        cost: bytes on the wire per byte.
        bound: seconds per byte that are known to be needed.
        known: good trees to begin with, in place of those that `schedules.tree` would grow.
    """
    first = (*(known or _first(topology)), *filter(topology.fits, star.trees(topology.size)))
    if not first:
        return Grown((), (), np.zeros(0), float("inf"))
    trees = dict.fromkeys(first)
    packing = Packing(topology.capacity)
    packing.add(topology.loads(list(trees), cost))
    shallow = () if known else tuple(trees)
    smoothed: Matrix | None = None
    turns = _turns(topology.size)
    good, fruitless = _ENOUGH if known else _GOOD, 0
    for turn in range(_ROUNDS):
        total, prices = packing.rates().sum(), packing.prices()
        if bound * min(cost) * total * good >= 1 or packing.work >= WORK or fruitless == len(turns):
            break
        mild = prices if smoothed is None else _SMOOTHING * smoothed + (1 - _SMOOTHING) * prices
        found, proven = _cheapest(topology, mild, turns[turn % len(turns)])
        bound = max(bound, proven)
        unknown = [one for one in found if one not in trees]
        loads = topology.loads(unknown, cost) if unknown else np.zeros((len(prices), 0))
        costs = (loads * prices[:, None]).sum(axis=0).tolist()
        fresh = [one for price, one in sorted(zip(costs, unknown, strict=True)) if price < 1 - _GAIN][:_FRESH]
        # when it found nothing at the very prices, these roots have no cheaper tree
        fruitless = fruitless + 1 if not fresh and smoothed is None else 0
        smoothed = mild if fresh else None
        if fresh:
            trees |= dict.fromkeys(fresh)
            packing.add(topology.loads(fresh, cost))
    return Grown(shallow, tuple(trees), packing.rates(), bound)


def _first(topology: Topology) -> tuple[Tree, ...]:
    passes, kept = next(((passes, kept) for most, passes, kept in _PASSES if topology.size <= most), (1, 1))
    return tree.trees(topology, passes, kept)


def _turns(size: int) -> list[range]:
    """Give the roots to be tried at a time: all of few, a few of many, spread over them."""
    count = 1 if size <= EXACT else -(-size // _ROOTS)
    return [range(first, size, count) for first in range(count)]


def _cheapest(topology: Topology, prices: Matrix, roots: range) -> tuple[list[Tree], float]:
    """Find the cheapest pair of trees for each of the roots, and the bound (seconds per byte) that the prices prove."""
    limited = np.isfinite(topology.capacity)
    worth = float(prices[limited] @ topology.capacity[limited])
    proven = len(roots) == topology.size
    edges = topology.prices(prices if proven else prices + _even(topology.capacity) * worth)
    found, costs = [], []
    for root in roots:
        down, up = cheapest(edges, root), cheapest(edges.T, root)
        if down is not None and up is not None:
            found.append(Tree(root, up[0], down[0]))
            costs.append(down[1] + up[1])
    least = min(costs, default=float("inf")) if proven else cheapest_at_least(topology.prices(prices))
    return found, price_bound(worth, least, 1.0)


def _even(capacity: Matrix) -> Matrix:
    """Price all that limits alike, by what it can carry."""
    counts = np.isfinite(capacity) & (capacity > 0)
    share = _EVEN / max(1, int(counts.sum()))
    return np.divide(share, capacity, out=np.zeros_like(capacity), where=counts)
