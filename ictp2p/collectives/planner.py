"""Choose the schedule: predict each candidate on the measured links, take the fastest, and say why.

Candidates are sets of trees: stars, the best ring, recursive halving, single trees such as each parameter server, and
trees grown over the graph. For each set a linear program decides how much of the vector each tree carries
(`packing`), which gives the time in the fluid model; the longest way of a chunk through its trees is added, and what
each chunk costs who handles it, for at small sizes these are all there is. Beside the prediction stands a lower bound:
a gap between the two is the planner's fault or the bound's, never unknown.

The coordinator plans once and the plan's bytes are agreed, so only it needs the measurements. Equal requests give
equal bytes on one platform.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import structs

from ictp2p.collectives.bounds import lower_bound
from ictp2p.collectives.candidates import Candidate, Job, alone, needed, nobody_else, predicted, shared, together
from ictp2p.collectives.codecs import prices
from ictp2p.collectives.exchange import ROOM_BYTES
from ictp2p.collectives.growing import grow
from ictp2p.collectives.plan import BROADCAST, Plan, Share
from ictp2p.collectives.schedules import halving_doubling, parameter_server, ring, star
from ictp2p.collectives.schedules.trees import Tree, downward
from ictp2p.collectives.topology import UNMEASURED, LinkEstimate, Pair, Topology, Trunk, build
from ictp2p.errors import ConfigError, NoRoute
from ictp2p.types import PeerId

__all__ = ["Decision", "LinkEstimate", "PlanRequest", "Trunk", "plan", "plan_broadcast", "predict"]

MARGIN = 1.05
"""A more complicated schedule has to be faster by this factor. Candidates are tried in the order of simplicity."""
NOMINAL = 1e9
"""Bytes/s of an unmeasured link when a codec is chosen: a slow wire is the safer guess where it decides that."""
SLOW = 0.05
"""Trees are also tried without links slower than this share of the fastest: a little carried by them costs the delay
of a chunk on them."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is to be planned for."""

    participants: tuple[PeerId, ...]
    elements: int
    itemsize: int
    links: Mapping[Pair, LinkEstimate]
    """Directed; a pair that is missing cannot be connected, in that direction. Links of relays may be among them."""
    up: Mapping[PeerId, float] = field(default_factory=dict)
    """Bytes/s that a peer can send in all; missing: as much as its links."""
    down: Mapping[PeerId, float] = field(default_factory=dict)
    """Bytes/s that a peer can receive in all."""
    trunks: tuple[Trunk, ...] = ()
    """What links are known to share."""
    room: Mapping[PeerId, int] = field(default_factory=dict)
    """Bytes that a peer keeps for contributions at most; missing: `ROOM_BYTES`."""
    only: str | None = None
    """Consider only this kind of schedule."""
    codec: str = "none"
    """How elements travel; `auto` to choose by predicted time."""

    def job(self, topology: Topology, codec: str = "none") -> Job:
        """Put together what candidates are made of."""
        room = np.array([self.room.get(name, ROOM_BYTES) for name in self.participants], dtype=np.float64)
        return Job(topology, self.elements, self.itemsize, prices.price(codec, topology.size), room)


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and why it was chosen."""

    plan: Plan
    reason: str


def plan(request: PlanRequest) -> Decision:
    """Plan an all-reduce.

    Raises:
        ConfigError: no participants, or one stands twice; figures or a codec that cannot be.
        NoRoute: some participant cannot be reached by the links that there are, or the asked kind does not fit them.
    """
    topology = _topology(request)
    if request.codec != prices.AUTO:
        return _plan(request, topology, request.codec)
    plain = _plan(request, topology, "none")
    if request.itemsize != 4 or topology.size == 1:
        return plain
    seconds = plain.plan.seconds * (1.0 if topology.measured else UNMEASURED / NOMINAL)
    codec = min(prices.CHOICES, key=lambda codec: _estimate(request, plain.plan, seconds, codec))
    return plain if codec == "none" else _plan(request, topology, codec)


def predict(request: PlanRequest, running: Plan) -> float:
    """Predict how many seconds a plan made earlier would take on the links of `request`; 0 if it does not fit them."""
    topology = _topology(request)
    trees = [Tree(share.root, share.reduce_parents, share.broadcast_parents) for share in running.shares]
    if not trees or running.participants != request.participants or not all(topology.fits(tree) for tree in trees):
        return 0.0
    cuts = [share.start for share in running.shares] + [request.elements]
    rooms = tuple(share.room for share in running.shares)
    return predicted(running.kind, trees, cuts, running.chunk, request.job(topology, running.codec), rooms).seconds


def roomy(request: PlanRequest, made: Plan) -> Plan:
    """Give the contributions of a plan that was put together elsewhere the room that they need for its seconds."""
    trees = [Tree(share.root, share.reduce_parents, share.broadcast_parents) for share in made.shares]
    cuts = [share.start for share in made.shares] + [request.elements]
    rooms = needed(trees, cuts, made.chunk, made.seconds, request.job(_topology(request), made.codec))
    shares = [structs.replace(share, room=room) for share, room in zip(made.shares, rooms, strict=True)]
    return structs.replace(made, shares=tuple(shares))


def plan_broadcast(request: PlanRequest, root: PeerId) -> Decision:
    """Plan a copy from `root` to all others: a star, a chain along the best ring, or trees, by predicted time.

    Raises:
        ConfigError: `root` is not a participant.
        NoRoute: some participant cannot be reached.
    """
    if root not in request.participants:
        raise ConfigError(f"broadcast root {root} is not among {request.participants}")
    topology, origin = _topology(request), request.participants.index(root)
    job = request.job(topology)
    if topology.size == 1:
        return Decision(_build(request, replace(nobody_else(job), kind=BROADCAST), 0.0), "there is one participant")
    outward = min(float(topology.up[origin]), float(topology.width[origin].sum()))
    inward = float(np.delete(np.minimum(topology.down, topology.width.sum(axis=0)), origin).min())
    bound = job.size / max(min(outward, inward), 1e-9)
    grown = grow(topology, job.cost).trees
    families = [("star", star.trees(topology.size)), ("ring", _ring(topology)), ("tree", grown)]
    candidates = []
    for kind, trees in families:
        ours = [downward(tree) for tree in trees if tree.root == origin and topology.fits(downward(tree))]
        candidates += [c for c in (together(kind, ours, job), alone(kind, ours, job)) if c is not None]
    if not candidates:
        raise NoRoute(f"{root} does not reach all of {', '.join(request.participants)} by the links given")
    best = min(candidates, key=lambda candidate: candidate.seconds)
    reason = _reason(best, candidates, bound, len(request.links))
    return Decision(_build(request, replace(best, kind=BROADCAST), bound), reason)


def _plan(request: PlanRequest, topology: Topology, codec: str) -> Decision:
    job = request.job(topology, codec)
    if topology.size == 1:
        return Decision(_build(request, nobody_else(job), 0.0, codec), "star: there is one participant")
    search = _Search(job, request.only)
    candidates = list(search.candidates())
    if not candidates:
        raise NoRoute(f"no {request.only or 'schedule'} connects {', '.join(request.participants)} by the links given")
    best = _chosen(candidates)
    return Decision(
        _build(request, best, search.bound, codec), _reason(best, candidates, search.bound, len(request.links))
    )


def _chosen(candidates: Sequence[Candidate]) -> Candidate:
    """Choose among those that are about as fast as the fastest the one that crowds its lines least; or the simplest."""
    limit = MARGIN * min(candidate.seconds for candidate in candidates)
    best, *others = [candidate for candidate in candidates if candidate.seconds <= limit]
    for candidate in others:
        if candidate.crowded * MARGIN < best.crowded:
            best = candidate
    return best


class _Search:
    """Makes the candidates, the simplest first, and the bound on them all."""

    def __init__(self, job: Job, only: str | None) -> None:
        self._job, self._only = job, only
        self.bound = lower_bound(job.topology, job.size * job.price.least)

    def candidates(self) -> Iterator[Candidate]:
        job, size = self._job, self._job.topology.size
        best = float("inf")
        for kind, trees, single in (
            ("star", star.trees(size), False),
            ("parameter_server", parameter_server.trees(size), True),
            ("ring", _ring(job.topology), False),
            ("halving_doubling", halving_doubling.trees(size), False),
            ("halving_doubling", halving_doubling.trees(size), True),
        ):
            for candidate in self._candidates(kind, trees, single=single):
                best = min(best, candidate.fluid)
                yield candidate
        if self._only in (None, "tree") and not best <= MARGIN * self.bound:
            yield from self._trees()

    def _candidates(self, kind: str, trees: Sequence[Tree], *, single: bool) -> Iterator[Candidate]:
        fitting = [tree for tree in trees if self._job.topology.fits(tree)]
        if self._only not in (None, kind) or (len(fitting) < len(trees) and not single):
            return
        candidate = (alone if single else together)(kind, fitting, self._job)
        if candidate is not None:
            yield candidate

    def _trees(self) -> Iterator[Candidate]:
        job = self._job
        grown = grow(job.topology, job.cost, self.bound / (job.size * job.price.least) if job.size else 0.0)
        self.bound = max(self.bound, grown.bound * job.size * job.price.least if job.size else 0.0)
        if not grown.trees:
            return
        yield shared("tree", grown.trees, grown.rates, job)
        wide = job.topology.without(SLOW)
        for arrange, trees in (
            (together, grown.shallow if len(grown.shallow) < len(grown.trees) else ()),
            (together, [tree for tree in grown.shallow if wide.fits(tree)] if wide else ()),
            (alone, grown.shallow),
        ):
            candidate = arrange("tree", trees, job)
            if candidate is not None:
                yield candidate


def _ring(topology: Topology) -> tuple[Tree, ...]:
    cycle = ring.best_cycle(topology.width, topology.delay)
    return ring.trees(cycle) if cycle else ()


def _estimate(request: PlanRequest, plain: Plan, seconds: float, codec: str) -> float:
    """Estimate how long `codec` would take if `plain` takes `seconds`: fewer bytes, and work that nothing hides."""
    participants, size = len(request.participants), float(request.elements * request.itemsize)
    price = prices.price(codec, participants)
    if codec == "none":
        return seconds
    more = price.seconds(size, participants) - prices.PRICES["none"].seconds(size, participants)
    return seconds * max(price.contribution, price.result) + more + 2 * participants * prices.CALL


def _topology(request: PlanRequest) -> Topology:
    names = request.participants
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"participants {names!r} are none, or one stands twice")
    if request.elements < 0 or request.itemsize < 1:
        raise ConfigError(f"{request.elements} elements of {request.itemsize} bytes")
    return build(names, request.links, request.up, request.down, request.trunks)


def _build(request: PlanRequest, chosen: Candidate, bound: float, codec: str = "none") -> Plan:
    shares = tuple(
        Share(start, stop, *tree, room)
        for tree, start, stop, room in zip(chosen.trees, chosen.cuts, chosen.cuts[1:], chosen.rooms, strict=False)
    )
    seconds = max(chosen.seconds, bound)
    return Plan(chosen.kind, request.participants, shares, chosen.chunk, seconds, bound, codec)


def _reason(best: Candidate, candidates: Sequence[Candidate], bound: float, links: int) -> str:
    fastest: dict[str, float] = {}
    for other in candidates:
        if other.kind != best.kind:
            fastest[other.kind] = min(other.seconds, fastest.get(other.kind, np.inf))
    against = ", ".join(f"{kind} {seconds:.3g} s" for kind, seconds in sorted(fastest.items())) or "nothing else fits"
    return f"{best.kind}: {best.seconds:.3g} s predicted over {links} links, bound {bound:.3g} s; against {against}"
