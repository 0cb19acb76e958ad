"""Choose the schedule: predict each candidate on the measured links, take the fastest, and say why.

Candidates are sets of trees (`search`). How much of the vector each tree carries, by a linear program (`packing`) or as
it was laid, gives the time in the fluid model; the longest way of a chunk through its trees is added, and what each
chunk costs who handles it, for at small sizes these are all there is. Beside the prediction stands a lower bound: a gap
between the two is the planner's fault or the bound's, never unknown.

The coordinator plans once and the plan's bytes are agreed, so only it needs the measurements. Equal requests give
equal bytes on one platform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import structs

from ictp2p.collectives.codecs import prices
from ictp2p.collectives.plan import BROADCAST, ONE_SHOT, Plan, Share, one_shot_plan
from ictp2p.collectives.planning.bounds import lower_bound
from ictp2p.collectives.planning.candidates import (
    Candidate,
    Job,
    alone,
    in_one_shot,
    needed,
    nobody_else,
    predicted,
    together,
)
from ictp2p.collectives.planning.growing import grow
from ictp2p.collectives.planning.schedules import star
from ictp2p.collectives.planning.schedules.trees import Tree, downward
from ictp2p.collectives.planning.search import Search, around, chosen
from ictp2p.collectives.planning.topology import UNMEASURED, LinkEstimate, Pair, Topology, Trunk, build
from ictp2p.collectives.running.windows import ROOM_BYTES
from ictp2p.errors import ConfigError, NoRoute
from ictp2p.types import PeerId

__all__ = ["Decision", "LinkEstimate", "PlanRequest", "Trunk", "Ways", "plan", "plan_broadcast", "predict", "ways"]

NOMINAL = 1e9
"""Bytes/s of an unmeasured link when a codec is chosen: a slow wire is the safer guess where it decides that."""


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
    small: bool = False
    """Whether everybody may add up for itself: what is added must come out alike everywhere (`one_shot`)."""

    def job(self, topology: Topology, codec: str = "none") -> Job:
        """Put together what candidates are made of."""
        room = np.array([self.room.get(name, ROOM_BYTES) for name in self.participants], dtype=np.float64)
        return Job(topology, self.elements, self.itemsize, prices.price(codec, topology.size), room)


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and why it was chosen."""

    plan: Plan
    reason: str


@dataclass(frozen=True, slots=True)
class Ways:
    """What copies may go along over some links, whoever is their root and however long they are."""

    topology: Topology
    families: tuple[tuple[str, tuple[Tree, ...]], ...]
    """By kind of schedule, the trees of all roots; none where there is nobody else."""


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
    codec = min(prices.CHOICES, key=lambda codec: _estimate(request, seconds, codec))
    return plain if codec == "none" else _plan(request, topology, codec)


def predict(request: PlanRequest, running: Plan) -> float:
    """Predict how many seconds a plan made earlier would take on the links of `request`; 0 if it does not fit them.

    Nor does one that asks for more room than a participant gives by now: it came back with another configuration.
    """
    topology = _topology(request)
    trees = [Tree(share.root, share.reduce_parents, share.broadcast_parents) for share in running.shares]
    if not trees or running.participants != request.participants or not all(topology.fits(tree) for tree in trees):
        return 0.0
    if any(running.room(node) > request.room.get(name, ROOM_BYTES) for node, name in enumerate(request.participants)):
        return 0.0
    cuts = [share.start for share in running.shares] + [request.elements]
    rooms = tuple(share.room for share in running.shares)
    return predicted(running.kind, trees, cuts, running.chunk, request.job(topology, running.codec), rooms).seconds


def at_least(request: PlanRequest) -> float:
    """Give the seconds that no plan takes less than on the links of `request`, whatever its codec saves."""
    codecs = prices.CHOICES if request.codec == prices.AUTO else (request.codec,)
    least = min(prices.price(codec, len(request.participants)).least for codec in codecs)
    return lower_bound(_topology(request), request.elements * request.itemsize * least)


def roomy(request: PlanRequest, made: Plan) -> Plan:
    """Give the contributions of a plan that was put together elsewhere the room that they need for its seconds."""
    trees = [Tree(share.root, share.reduce_parents, share.broadcast_parents) for share in made.shares]
    cuts = [share.start for share in made.shares] + [request.elements]
    rooms = needed(trees, cuts, made.chunk, made.seconds, request.job(_topology(request), made.codec))
    shares = [structs.replace(share, room=room) for share, room in zip(made.shares, rooms, strict=True)]
    return structs.replace(made, shares=tuple(shares))


def ways(request: PlanRequest) -> Ways:
    """Seek the ways of copies, which is nearly all that planning one costs: once for any number over the same links.

    Raises:
        ConfigError: as `plan`.
    """
    topology = _topology(request)
    if topology.size == 1:
        return Ways(topology, ())
    grown = grow(topology, request.job(topology).cost).trees
    return Ways(topology, (("star", star.trees(topology.size)), ("ring", around(topology)), ("tree", grown)))


def plan_broadcast(request: PlanRequest, root: PeerId, known: Ways | None = None) -> Decision:
    """Plan a copy from `root` to all others: a star, a chain along the best ring, or trees, by predicted time.

    Args:
        request: what is to be planned for.
        root: who has what is copied.
        known: the `ways` of a request for these participants and links; None: they are sought.

    Raises:
        ConfigError: `root` is not a participant.
        NoRoute: some participant cannot be reached.
    """
    if root not in request.participants:
        raise ConfigError(f"broadcast root {root} is not among {request.participants}")
    known, origin = known or ways(request), request.participants.index(root)
    topology = known.topology
    job = request.job(topology)
    if topology.size == 1:
        return Decision(_build(request, replace(nobody_else(job), kind=BROADCAST), 0.0), "there is one participant")
    outward = min(float(topology.up[origin]), float(topology.width[origin].sum()))
    inward = float(np.delete(np.minimum(topology.down, topology.width.sum(axis=0)), origin).min())
    bound = job.size / max(min(outward, inward), 1e-9)
    candidates = []
    for kind, trees in known.families:
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
    search = Search(job, request.only)
    candidates = list(search.candidates())
    if not candidates:
        raise NoRoute(f"no {request.only or 'schedule'} connects {', '.join(request.participants)} by the links given")
    best = chosen(candidates)
    reason = _reason(best, candidates, search.bound, len(request.links))
    at_once = in_one_shot(job) if request.small and codec == "none" and request.only in (None, ONE_SHOT) else np.inf
    if at_once < best.seconds:
        made = one_shot_plan(request.participants, request.elements, max(at_once, search.bound), search.bound)
        return Decision(made, f"{ONE_SHOT}: {at_once:.3g} s predicted, against {reason}")
    return Decision(_build(request, best, search.bound, codec), reason)


def _estimate(request: PlanRequest, seconds: float, codec: str) -> float:
    """Estimate how long `codec` would take where none takes `seconds`: fewer bytes, and work that nothing hides."""
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
    return Plan(chosen.kind, request.participants, shares, chosen.chunk, seconds, bound, codec, way=chosen.way)


def _reason(best: Candidate, candidates: Sequence[Candidate], bound: float, links: int) -> str:
    fastest: dict[str, float] = {}
    for other in candidates:
        if other.kind != best.kind:
            fastest[other.kind] = min(other.seconds, fastest.get(other.kind, np.inf))
    against = ", ".join(f"{kind} {seconds:.3g} s" for kind, seconds in sorted(fastest.items())) or "nothing else fits"
    return f"{best.kind}: {best.seconds:.3g} s predicted over {links} links, bound {bound:.3g} s; against {against}"
