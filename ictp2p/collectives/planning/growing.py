"""Trees for any graph, and a proof of how far from the best they can be.

First come the trees that `schedules.tree` grows, and the stars whose links are there. The linear program over them
prices each resource; a tree that costs less than the price of a byte would make the plan faster, so the cheapest trees
at these prices (`schedules.arborescence`) are taken in, and so on (column generation). Among few participants they are
sought around every root, which also proves the bound; among many around a few roots at a time, in turn, for trees of
different roots hardly differ in price. There the last prices prove one, by the cheapest way up and the cheapest down of
all, whether their roots meet or not. Growing the later trees as the first ones were, by a heuristic, was quicker, and
ended a third above the bound where regions are joined by narrow lines: such trees do not look ahead to what entering
a region by this participant will cost. Prices are smoothed, as they would else jump from one extreme to the other
(Wentges 1997).

Where many resources have a price, a program over ever more trees is out of reach. Then trees are laid without one
(`laying`), and only these are packed: regions with a link for each pair took up to nine times the bound before. What
the program's prices ask for helps little there, for they are some of many that would do as well; trees that go where
the packed ones leave room (`relieve`) help more. Its bound would be that of volumes, so another is proven: by the
program of the same network with participants merged into few groups (`bounds.merged`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ictp2p.collectives.planning.bounds import linkage, merged, price_bound
from ictp2p.collectives.planning.laying import STEEPNESS, Laid, Near, lay
from ictp2p.collectives.planning.packing import WORK, Packing, carried, filled
from ictp2p.collectives.planning.schedules import star, tree
from ictp2p.collectives.planning.schedules.arborescence import cheapest, cheapest_anywhere
from ictp2p.collectives.planning.schedules.trees import WHOLE, Cost, Matrix, Tree
from ictp2p.collectives.planning.topology import Topology

FEW = 8
"""Among so few participants trees are grown however many resources bind: a program over them all is quick."""
_FIRST = WORK // 10
"""What a program over the first trees may take among more, a thirtieth of a second."""
_FURTHER = 12
"""Up to this many participants more trees are sought where some were laid, as it takes a tenth of a second; and where
links share trunks, of which it is not known when they are laid what they will have to carry in any case."""
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
_FAIR = 1.4
"""Trees that were laid are laid again, further from their roots, unless they are within this factor of the bound before
a program has divided them."""
_GROUPS = 10
"""In so many groups participants are merged for a bound on what is too much for a program: it was that of all in five
of eight networks; that of 8 groups, in a quarter of the time, in two."""
_RELIEVED = 24
"""Up to this many participants trees that were laid are relieved; regions of more are within 1.01 of their bound."""
_TURNS = 12
"""How often, a few roots at a time: a tenth of a second among 18. Twice as often gave nothing but among 13, 0.01."""
_RELAXED = 1.02
"""Within this factor of the bound they are not."""
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
    laid: Laid | None = None
    """Those that were laid, if any were."""


def grow(topology: Topology, cost: Cost, bound: float = 0.0, nears: Sequence[Near | None] = (None,)) -> Grown:
    """Grow trees until they are as good as the `bound` (seconds per byte), or none would help.

    The bound returned is the larger one of that given and that proven; without any tree, it is infinite.

    Args:
        topology: what limits.
        cost: bytes on the wire per byte.
        bound: seconds per byte that are known to be needed.
        nears: how far everybody may be from the root of a tree that is laid (None: as far as is cheap): the first of
            them that is not dear.
    """
    shallow = _first(topology)
    first = (*shallow, *filter(topology.fits, star.trees(topology.size)))
    if not first:
        return Grown((), (), np.zeros(0), float("inf"))
    many = topology.size > FEW
    growth = _Growth(topology, cost, bound, _FIRST if many else WORK)
    growth.begin(first, np.ones(len(first)))
    laid = None
    if many and not growth.is_good() and growth.is_out_of_reach():
        laid = _laid(topology, cost, bound or 1 / growth.rates.sum(), nears)
    if laid is not None:
        growth = _Growth(topology, cost, bound, WORK)
        growth.begin(laid.trees, laid.parts)
    if laid is None or topology.size <= _FURTHER or topology.trunks:
        growth.go_on()
    elif not growth.is_good():
        growth.bound = max(growth.bound, _merged_bound(topology, growth.bound))
        if topology.size <= _RELIEVED:
            growth.relieve()
    if topology.size > EXACT and not growth.is_good():
        growth.prove()
    return Grown(shallow, tuple(growth.trees), growth.rates, growth.bound, laid)


class _Growth:
    """Trees, their packing, and more of them as its prices ask for them."""

    def __init__(self, topology: Topology, cost: Cost, bound: float, most: int) -> None:
        self._topology, self._cost = topology, cost
        self._packing = Packing(topology.capacity, most)
        self.trees: dict[Tree, None] = {}
        self.rates = np.zeros(0)
        """Bytes/s of each tree when all run side by side: of the last packing that came to its end."""
        self.bound = bound

    def is_out_of_reach(self) -> bool:
        """Whether a program over more trees would take too long: too much binds."""
        return self._packing.exhausted or int((self._packing.prices() > 0).sum()) > self._topology.size // 2

    def is_good(self) -> bool:
        """Whether these trees are so near to the bound that no more are sought."""
        return self.is_within(_GOOD)

    def is_within(self, factor: float) -> bool:
        """Whether these trees take at most so many times the bound."""
        return bool(self.bound * min(self._cost) * self.rates.sum() * factor >= 1)

    def begin(self, trees: Sequence[Tree], parts: Matrix) -> None:
        """Begin with trees, each of which carries its part unless the program finds something better."""
        shares = dict.fromkeys(trees, 0.0)
        for one, part in zip(trees, parts.tolist(), strict=True):
            shares[one] += part
        loads = self._topology.loads(list(shares), self._cost)
        self.rates = filled(loads, self._topology.capacity, np.array(list(shares.values())))
        self._take_in(list(shares), loads)

    def go_on(self) -> None:
        """Take in trees that the prices ask for."""
        turns, smoothed, fruitless = _turns(self._topology.size), None, 0
        self._packing.most = WORK
        for turn in range(_ROUNDS):
            if self.is_good() or self._packing.exhausted or fruitless == len(turns):
                break
            prices = self._packing.prices()
            mild = prices if smoothed is None else _SMOOTHING * smoothed + (1 - _SMOOTHING) * prices
            found, proven = _cheapest(self._topology, mild, turns[turn % len(turns)])
            self.bound = max(self.bound, proven)
            fresh = self._gaining(found, prices)
            # when it found nothing at the very prices, these roots have no cheaper tree
            fruitless = fruitless + 1 if not fresh and smoothed is None else 0
            smoothed = mild if fresh else None
            if fresh:
                self._take_in(fresh, self._topology.loads(fresh, self._cost))

    def relieve(self) -> None:
        """Take in trees that go where these leave room, a few roots at a time."""
        capacity, turns = self._topology.capacity, _spread(self._topology.size)
        inverse = np.divide(1.0, capacity, out=np.zeros_like(capacity), where=np.isfinite(capacity) & (capacity > 0))
        for turn in range(_TURNS):
            if self.is_within(_RELAXED) or self._packing.exhausted:
                break
            full = carried(self._topology.loads(list(self.trees), self._cost), self.rates) * inverse
            found, _ = _cheapest(self._topology, np.minimum(full, 1.0) ** STEEPNESS * inverse, turns[turn % len(turns)])
            fresh = [one for one in found if one not in self.trees][:_FRESH]
            if fresh:
                self._take_in(fresh, self._topology.loads(fresh, self._cost))

    def prove(self) -> None:
        """Prove a bound by the last prices, and by trees whose roots need not meet."""
        prices, limited = self._packing.prices(), np.isfinite(self._topology.capacity)
        edges = self._topology.prices(prices)
        least = cheapest_anywhere(edges) + cheapest_anywhere(edges.T)
        worth = float(prices[limited] @ self._topology.capacity[limited])
        self.bound = max(self.bound, price_bound(worth, least, 1.0))

    def _gaining(self, found: Sequence[Tree], prices: Matrix) -> list[Tree]:
        """Choose those of the trees that cost less than a byte is worth."""
        unknown = [one for one in found if one not in self.trees]
        if not unknown:
            return []
        costs = (self._topology.loads(unknown, self._cost) * prices[:, None]).sum(axis=0).tolist()
        return [one for price, one in sorted(zip(costs, unknown, strict=True)) if price < 1 - _GAIN][:_FRESH]

    def _take_in(self, trees: Sequence[Tree], loads: Matrix) -> None:
        """Pack these trees as well; if that takes too long, what was packed before stands."""
        self.trees |= dict.fromkeys(trees)
        self.rates = np.append(self.rates, np.zeros(len(self.trees) - len(self.rates)))
        self._packing.add(loads)
        if not self._packing.exhausted:
            self.rates = self._packing.rates()


def _laid(topology: Topology, cost: Cost, bound: float, nears: Sequence[Near | None]) -> Laid | None:
    """Lay trees as near as is not dear; None if they could not be laid."""
    found = None
    for near in nears:
        laid = lay(topology, bound, near)
        found = laid or found
        if laid is not None:
            rates = filled(topology.loads(laid.trees, cost), topology.capacity, laid.parts)
            if bound * min(cost) * rates.sum() * _FAIR >= 1:
                break
    return found


def _merged_bound(topology: Topology, bound: float) -> float:
    """Prove a bound by what the network could do if some of its participants were one."""
    groups = next((groups for groups in linkage(topology.fair()) if len(groups) <= _GROUPS), None)
    return grow(merged(topology, groups), WHOLE, bound).bound if groups else bound


def _first(topology: Topology) -> tuple[Tree, ...]:
    passes, kept = next(((passes, kept) for most, passes, kept in _PASSES if topology.size <= most), (1, 1))
    return tree.trees(topology, passes, kept)


def _turns(size: int) -> list[range]:
    """Give the roots to be tried at a time: all of few, a few of many."""
    return [range(size)] if size <= EXACT else _spread(size)


def _spread(size: int) -> list[range]:
    """Give a few roots at a time, spread over all."""
    count = -(-size // _ROOTS)
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
    return found, price_bound(worth, min(costs, default=float("inf")), 1.0) if proven else 0.0


def _even(capacity: Matrix) -> Matrix:
    """Price all that limits alike, by what it can carry."""
    counts = np.isfinite(capacity) & (capacity > 0)
    share = _EVEN / max(1, int(counts.sum()))
    return np.divide(share, capacity, out=np.zeros_like(capacity), where=counts)
