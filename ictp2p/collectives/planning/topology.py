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
    numbers = _Numbers((*participants, *relays), trunks)
    known = sorted(link.bandwidth for link in links.values() if link.bandwidth)
    rates = _rates(numbers, links, known[len(known) // 2] if known else UNMEASURED)
    ups, downs = (_within(np.array([limit.get(name, np.inf) for name in numbers.peers])) for limit in (up, down))
    lines = _within(np.array([trunk.bandwidth for trunk in trunks]))
    capacity = np.concatenate([_within(rates), ups, downs, lines, [np.inf]])
    size, inside = len(participants), set(participants)
    edges = [(pair, link) for pair, link in links.items() if pair[0] != pair[1] and inside.issuperset(pair)]
    ways = [numbers.way(*pair, link.via) for pair, link in edges]
    delay, uses = np.zeros((size, size)), np.full((size, size, max(map(len, ways), default=1)), len(capacity) - 1)
    for ((source, target), link), way in zip(edges, ways, strict=True):
        edge = numbers.peers[source], numbers.peers[target]
        delay[edge] = link.delay
        uses[edge][: len(way)] = way
    there = uses[:, :, 0] < len(capacity) - 1
    width = np.where(there, capacity[uses].min(axis=2), 0.0)
    over = tuple(((uses == numbers.trunk(place)).any(axis=2), float(line)) for place, line in enumerate(lines))
    access = np.array([numbers.sends(n) for n in range(size)] + [numbers.receives(n) for n in range(size)])
    flat = uses.reshape(size * size, -1)
    return Topology(width, delay, flat, capacity, access, ups[:size], downs[:size], bool(known), over)


class _Numbers:
    """Of resources: links from each to each, then what each peer sends and what it receives in all, then trunks.

    Args:
        peers: participants, then relays.
        trunks: what lies beneath links.
    """

    def __init__(self, peers: Sequence[PeerId], trunks: Sequence[Trunk]) -> None:
        self.peers = {name: place for place, name in enumerate(peers)}
        self._beneath: dict[Pair, list[int]] = {}
        for place, trunk in enumerate(trunks):
            for pair in trunk.links:
                self._beneath.setdefault(pair, []).append(self.trunk(place))

    def link(self, source: PeerId, target: PeerId) -> int:
        """The link between two peers, one way."""
        return self.peers[source] * len(self.peers) + self.peers[target]

    def sends(self, place: int) -> int:
        """What a peer sends in all."""
        return len(self.peers) ** 2 + place

    def receives(self, place: int) -> int:
        """What a peer receives in all."""
        return self.sends(len(self.peers) + place)

    def trunk(self, place: int) -> int:
        """A trunk."""
        return self.receives(len(self.peers) + place)

    def way(self, source: PeerId, target: PeerId, via: PeerId | None) -> list[int]:
        """All that an edge uses: first the link that it stands for, also where that is over a relay."""
        if via is None:
            return self._hop(source, target)
        return [self.link(source, target), *self._hop(source, via), *self._hop(via, target)]

    def _hop(self, source: PeerId, target: PeerId) -> list[int]:
        ends = self.sends(self.peers[source]), self.receives(self.peers[target])
        return [self.link(source, target), *ends, *self._beneath.get((source, target), ())]


def _rates(numbers: _Numbers, links: Mapping[Pair, LinkEstimate], assumed: float) -> Matrix:
    """The bandwidth of each link; infinite where there is none."""
    rates = np.full(len(numbers.peers) ** 2, np.inf)
    for (source, target), link in links.items():
        if source in numbers.peers and target in numbers.peers:
            rates[numbers.link(source, target)] = (
                max(assumed, link.at_least) if link.bandwidth is None else link.bandwidth
            )
    return rates


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
