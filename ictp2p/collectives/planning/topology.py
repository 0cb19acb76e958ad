"""What limits a transfer: links, access links, relays, and trunks that links share, all as one kind of thing.

A *resource* is anything with a capacity in bytes per second, and sending a byte along an edge takes a byte of each
resource that the edge uses: of the link itself, of what its ends can send and receive in all (the hose model; Duffield
et al. 2002), of both links and of the relay where two participants only meet through a third, and of every trunk
that is known to lie beneath. Planner and bounds then need no cases: a plan is as fast as its most loaded resource.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.planning.schedules.forest import Forest, forest
from ictp2p.collectives.planning.schedules.trees import Cost, Matrix, Tree
from ictp2p.errors import ConfigError
from ictp2p.types import PeerId

UNMEASURED = 4e9
"""Bytes/s assumed of a link when no link at all has been measured: what a process moves over loopback. A slower one
would favour whatever uses most links side by side, though as likely they share a line or a core."""

LEAST, MOST = 1e-3, 1e15
"""Bytes/s between which rates are reckoned with, except none at all and no limit. Figures come from other clusters, and
ratios of those further apart are no numbers any more; as a rate, nothing beyond differs from these."""

Pair = tuple[PeerId, PeerId]


@dataclass(frozen=True, slots=True)
class LinkEstimate:
    """What is known of the way from one peer to another."""

    bandwidth: float | None = None
    """Bytes/s; None: not measured yet; 0: nothing passes."""
    delay: float = 0.0
    """Seconds, one way."""
    via: PeerId | None = None
    """The peer that relays it, and whose links carry it as well; None: it is direct."""
    at_least: float = 0.0
    """Bytes/s that it has carried while something else was the limit, where the bandwidth is not known."""


@dataclass(frozen=True, slots=True)
class Trunk:
    """Links that share a line somewhere on their way: together they get no more than its bandwidth in bytes/s."""

    links: tuple[Pair, ...]
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Topology:
    """The directed edges between participants, and the resources that they use."""

    width: Matrix
    """Bytes/s from each participant to each, when nothing else is sent; 0 where there is no edge."""
    delay: Matrix
    """Seconds, one way."""
    uses: npt.NDArray[np.intp]
    """`uses[source * size + target]` lists resources, filled up with the last one, which has no limit."""
    capacity: Matrix
    """Bytes/s of each resource."""
    lines: npt.NDArray[np.intp]
    """The resources that are participants' access lines, both ways of each."""
    up: Matrix
    """Bytes/s that each participant can send in all."""
    down: Matrix
    """Bytes/s that each participant can receive in all."""
    measured: bool = True
    """Whether any link was."""
    trunks: tuple[tuple[npt.NDArray[np.bool_], float], ...] = ()
    """The edges over each trunk, and its bytes/s."""

    @property
    def size(self) -> int:
        """How many participants there are."""
        return len(self.width)

    def prices(self, resources: Matrix) -> Matrix:
        """Price each edge at the sum of the prices of the resources that it uses; infinite where there is none."""
        priced = resources[self.uses].sum(axis=1).reshape(self.width.shape)
        return np.where(self.width > 0, priced, np.inf)

    def loads(self, trees: Sequence[Tree], cost: Cost) -> Matrix:
        """Count the bytes that each resource (rows) carries per byte of a share that goes along each tree (columns)."""
        stacked = forest(trees)
        places = self.uses[stacked.edges] * stacked.count + stacked.tree[:, None]
        weights = np.repeat(stacked.costs(cost), self.uses.shape[1])
        counted = np.bincount(places.ravel(), weights=weights, minlength=len(self.capacity) * stacked.count)
        return np.asarray(counted, dtype=np.float64).reshape(len(self.capacity), stacked.count)

    def carried(self, trees: Forest, cost: Cost, sizes: Matrix | npt.NDArray[np.int64]) -> Matrix:
        """Count what each resource carries when each of the trees takes so much."""
        carried = np.repeat(trees.costs(cost) * sizes[trees.tree], self.uses.shape[1])
        counted = np.bincount(self.uses[trees.edges].ravel(), weights=carried, minlength=len(self.capacity))
        return np.asarray(counted, dtype=np.float64)

    def fair(self) -> Matrix:
        """Give each edge's width when all edges over its trunks are used alike."""
        width = self.width.copy()
        for over, line in self.trunks:
            width[over] = np.minimum(width[over], line / max(1, int(over.sum())))
        return width

    def without(self, slow: float) -> Topology | None:
        """Leave out the edges narrower than `slow` times the widest; None if there are none."""
        kept = self.width >= slow * self.width.max()
        if (kept | (self.width == 0)).all():
            return None
        return replace(self, width=np.where(kept, self.width, 0.0))

    def fits(self, tree: Tree) -> bool:
        """Say whether all of the tree's edges are there."""
        return all(self.width[edge] > 0 for edge in tree.edges())


def build(
    participants: tuple[PeerId, ...],
    links: Mapping[Pair, LinkEstimate],
    up: Mapping[PeerId, float],
    down: Mapping[PeerId, float],
    trunks: Sequence[Trunk] = (),
) -> Topology:
    """Number the resources and list what each edge uses.

    Raises:
        ConfigError: a figure is negative or not a number.
    """
    _check(links, up, down, trunks)
    relays = sorted({link.via for link in links.values() if link.via is not None} - set(participants))
    number = {name: index for index, name in enumerate((*participants, *relays))}
    size, nodes = len(participants), len(number)
    known = sorted(link.bandwidth for link in links.values() if link.bandwidth)
    assumed = known[len(known) // 2] if known else UNMEASURED
    capacity = np.full(nodes * nodes, np.inf)
    for (source, target), link in links.items():
        if source in number and target in number:
            rate = max(assumed, link.at_least) if link.bandwidth is None else link.bandwidth
            capacity[number[source] * nodes + number[target]] = rate
    ups = np.array([up.get(name, np.inf) for name in number])
    downs = np.array([down.get(name, np.inf) for name in number])
    beneath: dict[Pair, list[int]] = {}
    trunk_capacity = np.array([trunk.bandwidth for trunk in trunks])
    for place, trunk in enumerate(trunks):
        for pair in trunk.links:
            beneath.setdefault(pair, []).append(nodes * nodes + 2 * nodes + place)
    ups, downs, trunk_capacity = _within(ups), _within(downs), _within(trunk_capacity)
    capacity = np.concatenate([_within(capacity), ups, downs, trunk_capacity, [np.inf]])

    def hop(source: PeerId, target: PeerId) -> list[int]:
        a, b = number[source], number[target]
        return [a * nodes + b, nodes * nodes + a, nodes * nodes + nodes + b, *beneath.get((source, target), ())]

    delay = np.zeros((size, size))
    uses: list[list[int]] = [[] for _ in range(size * size)]
    for (source, target), link in links.items():
        if source == target or number.get(source, size) >= size or number.get(target, size) >= size:
            continue
        delay[number[source], number[target]] = link.delay
        ways = hop(source, target)
        if link.via is not None:
            own = ways[0]
            ways = [own, *hop(source, link.via), *hop(link.via, target)]
        uses[number[source] * size + number[target]] = ways
    deepest = max(map(len, uses), default=0) or 1
    padded = np.full((size * size, deepest), len(capacity) - 1, dtype=np.intp)
    for edge, ways in enumerate(uses):
        padded[edge, : len(ways)] = ways
    there = np.array([bool(ways) for ways in uses]).reshape(size, size)
    width = np.where(there, capacity[padded].min(axis=1).reshape(size, size), 0.0)
    lines = []
    for place in range(len(trunks)):
        over = (padded == nodes * nodes + 2 * nodes + place).any(axis=1).reshape(size, size)
        lines.append((over, float(trunk_capacity[place])))
    access = nodes * nodes + np.concatenate([np.arange(size), nodes + np.arange(size)])
    return Topology(width, delay, padded, capacity, access, ups[:size], downs[:size], bool(known), tuple(lines))


def _within(rates: Matrix) -> Matrix:
    """Take a lower rate for `LEAST`, and a higher one for `MOST`."""
    return np.where((rates > 0) & (rates < np.inf), np.clip(rates, LEAST, MOST), rates)


def _check(
    links: Mapping[Pair, LinkEstimate],
    up: Mapping[PeerId, float],
    down: Mapping[PeerId, float],
    trunks: Iterable[Trunk],
) -> None:
    for pair, link in links.items():
        bandwidth = 0.0 if link.bandwidth is None else link.bandwidth
        if not (math.isfinite(bandwidth) and bandwidth >= 0 and math.isfinite(link.delay) and link.delay >= 0):
            raise ConfigError(f"the link {pair} has an impossible bandwidth or delay: {link}")
    limits = [*up.items(), *down.items(), *(("a trunk", trunk.bandwidth) for trunk in trunks)]
    for name, limit in limits:
        if not limit >= 0:
            raise ConfigError(f"the limit of {name} is {limit!r} bytes/s")
