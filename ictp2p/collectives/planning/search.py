"""What the planner chooses among: candidates in the order of their simplicity, and the bound on them all.

First come the schedules that have a name: stars, each parameter server, the best ring, recursive halving. Of a ring the
best single chain comes first: where a slow line can be its root it is as fast as all of them together, and depends on
fewer figures that may be wrong. Unless one of them is at the bound, sets of trees follow. Where links are what limits,
trees are laid that fill them alike (`levelling`), which is quick and comes near the bound; where it does not, and
wherever something else limits, trees are grown over the graph as the prices of a linear program ask for them
(`growing`), or, where too much limits for that, laid one after another (`laying`): of a short vector near their roots.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from ictp2p.collectives.planning import levelling
from ictp2p.collectives.planning.bounds import lower_bound
from ictp2p.collectives.planning.candidates import LEAST_CHUNK, Candidate, Job, alone, hop, shared, together
from ictp2p.collectives.planning.growing import FEW, grow
from ictp2p.collectives.planning.laying import Laid, Near, lay
from ictp2p.collectives.planning.schedules import halving_doubling, parameter_server, ring, star, tree
from ictp2p.collectives.planning.schedules.radius import eccentricities
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.collectives.planning.topology import Topology

MARGIN = 1.05
"""A more complicated schedule has to be faster by this factor. Candidates are tried in the order of simplicity."""
SLOW = 0.05
"""Trees are also tried without links slower than this share of the fastest: a little carried by them costs the delay
of a chunk on them."""
_QUICK = 32
"""Up to so many participants trees are also grown if levelled ones are not within `MARGIN` of the bound: it takes a
fifth of a second."""
_NEAR = 1.1
"""Among more, levelled trees so near to the bound will do."""
_AWAY = (2.0, 3.0)
"""How far trees may lead from their root, in the time in which the best root can reach all, and all it: in turn."""
_WAITS = 150.0
"""A vector that takes more than so many of these times hardly waits for its first chunk: its trees go as they like."""
_CLOSE = 1.25
"""How far they may lead at least."""
_HURRIES = 50.0
"""A vector of so many of these times may gain even by the closest trees; one of a hundred gains nothing."""
_WAITING = 2
"""Where more than half of the time is not for bytes, one tree may do, and a deeper one sends fewer messages at once."""


class Search:
    """Makes the candidates, the simplest first, and the bound on them all."""

    def __init__(self, job: Job, only: str | None) -> None:
        self._job, self._only = job, only
        self.bound = lower_bound(job.topology, job.size * job.price.least)

    def candidates(self) -> Iterator[Candidate]:
        """Predict candidates until one is at the bound, or there are no more."""
        size, cycle = self._job.topology.size, around(self._job.topology)
        chain = ring.best_chain(self._job.topology.width, self._job.topology.delay)
        best = float("inf")
        for kind, trees, single in (
            ("star", star.trees(size), False),
            ("parameter_server", parameter_server.trees(size), True),
            ("ring", (chain, *cycle) if chain else (), True),
            ("ring", cycle, False),
            ("halving_doubling", halving_doubling.trees(size), False),
            ("halving_doubling", halving_doubling.trees(size), True),
        ):
            for candidate in self._named(kind, trees, single=single):
                best = min(best, candidate.fluid + max(0.0, candidate.crowded - candidate.seconds))
                yield candidate
        if self._only in (None, "tree") and not best <= MARGIN * self.bound:
            yield from self._trees()

    def _named(self, kind: str, trees: Sequence[Tree], *, single: bool) -> Iterator[Candidate]:
        fitting = [one for one in trees if self._job.topology.fits(one)]
        if self._only not in (None, kind) or (len(fitting) < len(trees) and not single):
            return
        candidate = (alone if single else together)(kind, fitting, self._job)
        if candidate is not None:
            yield candidate

    def _trees(self) -> Iterator[Candidate]:
        """Level links, and unless that comes near the bound grow trees; these come first, for they were paid for."""
        levelled = sorted(self._levelled(), key=lambda candidate: candidate.seconds)
        nearest = min(levelled, key=lambda candidate: candidate.fluid, default=None)
        size = self._job.topology.size
        if nearest is None or nearest.fluid > (MARGIN if size <= _QUICK else _NEAR) * self.bound:
            yield from self._grown()
        if nearest is not None and nearest.seconds > _WAITING * nearest.fluid:
            single = alone("tree", tree.trees(self._job.topology, 1, 1), self._job)
            yield from [single] if single else ()
        yield from levelled

    def _levelled(self) -> Iterator[Candidate]:
        """Give trees that fill links alike: many, which fill them better, to few, which wait less often."""
        job, topology = self._job, self._job.topology
        least = levelling.least(topology.width) * job.size * job.price.least
        if topology.size <= FEW or MARGIN * least < self.bound:
            return
        graphs = [graph for graph in (topology, topology.without(SLOW)) if graph is not None]
        for graph, count in itertools.product(graphs, levelling.COUNTS):
            found = levelling.trees(graph.width, count)
            if found is not None:
                yield shared("tree", found.trees, found.parts, job)

    def _grown(self) -> Iterator[Candidate]:
        job, unit = self._job, self._job.size * self._job.price.least
        near = self._nearest()
        waits = [near.wider(away) for away in _AWAY if self.bound < _WAITS * near.radius < np.inf]
        grown = grow(job.topology, job.cost, self.bound / unit if unit else 0.0, (*waits, None))
        self.bound = max(self.bound, grown.bound * unit if unit else 0.0)
        if not grown.trees:
            return
        yield shared("tree", grown.trees, grown.rates, job)
        laid = grown.laid.trees if grown.laid else ()
        wide = job.topology.without(SLOW)
        for arrange, trees in (
            (together, laid if grown.laid and grown.laid.near and set(laid) < set(grown.trees) else ()),
            (together, self._closest(grown.laid, near)),
            (together, grown.shallow if len(grown.shallow) < len(grown.trees) else ()),
            (together, [one for one in grown.shallow if wide.fits(one)] if wide else ()),
            (alone, grown.shallow),
        ):
            candidate = arrange("tree", trees, job)
            if candidate is not None:
                yield candidate

    def _closest(self, laid: Laid | None, near: Near) -> Sequence[Tree]:
        """Give trees that lead hardly further than they must, where near ones were not dear and the time is short."""
        if not laid or not laid.near or laid.near.radius > _AWAY[0] * near.radius:
            return ()
        if self.bound > _HURRIES * near.radius:
            return ()
        closest = lay(self._job.topology, self.bound / (self._job.size * self._job.price.least), near.wider(_CLOSE))
        return closest.trees if closest else ()

    def _nearest(self) -> Near:
        """Give the ways of a chunk, and the time in which the best root can reach all, and all it."""
        ways = hop(self._job, LEAST_CHUNK // max(self._job.itemsize, 4))
        ways = np.where(self._job.topology.width > 0, ways, np.inf)
        return Near(ways, float(eccentricities(ways).min()))


def chosen(candidates: Sequence[Candidate]) -> Candidate:
    """Choose among those that are about as fast as the fastest the one that crowds its lines least; or the simplest."""
    limit = MARGIN * min(candidate.seconds for candidate in candidates)
    best, *others = [candidate for candidate in candidates if candidate.seconds <= limit]
    for candidate in others:
        if candidate.crowded * MARGIN < best.crowded:
            best = candidate
    return best


def around(topology: Topology) -> tuple[Tree, ...]:
    """Give the chains along the best ring, if there is one."""
    cycle = ring.best_cycle(topology.width, topology.delay)
    return ring.trees(cycle) if cycle else ()
