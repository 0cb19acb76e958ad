"""From what gossip knows of the links to a plan for one attempt.

Only the coordinator plans, and the plan's bytes are agreed, so its view of the links may be old or wrong at the
price of speed alone. A pair of clusters that has no connection of its own gets a virtual edge over the best relay;
the bulk room finds the way there by itself. An edge on which an earlier attempt failed is avoided if the others
suffice (a blocked pair must not stop a mesh that is otherwise connected).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ictp2p.collectives import plan as plans
from ictp2p.collectives import planner
from ictp2p.collectives.planner import LinkEstimate
from ictp2p.core.cards import ClusterCard, LinkCard
from ictp2p.core.directory import Directory
from ictp2p.errors import NoRoute, RemoteProtocolError
from ictp2p.sync.opening import PlanAnswer, PlanRequest
from ictp2p.sync.values import Participant, Spec
from ictp2p.types import ClusterId, PeerId

ITEM_SIZES: Mapping[str, int] = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
}
"""Bytes per element of each type that can be reduced."""

Edges = dict[tuple[PeerId, PeerId], LinkEstimate]


def make_plan(directory: Directory, request: PlanRequest) -> PlanAnswer:
    """Plan an attempt on the links that gossip knows.

    Raises:
        NoRoute: some participant cannot be reached from the others.
    """
    leaders = {p.cluster: p.leader for p in request.participants}
    edges = _edges(directory, leaders)
    failed = {frozenset(pair) for pair in request.failures}
    up = _limits(directory, leaders)
    healthy = {pair: edge for pair, edge in edges.items() if frozenset(pair) not in failed}
    try:
        decision = _decide(request, healthy, up)
    except NoRoute:
        decision = _decide(request, edges, up)
    return PlanAnswer(decision.plan.encode(), decision.reason[:1024], decision.plan.seconds)


def check_plan(data: bytes, participants: tuple[Participant, ...]) -> str | None:
    """Say what is wrong with a plan's bytes for these participants, or None; the executor checks the elements."""
    try:
        plan = plans.decode(data)
    except RemoteProtocolError as error:
        return str(error)
    return plans.check(plan, [p.leader for p in participants], plan.elements)


def _decide(request: PlanRequest, edges: Edges, up: Mapping[PeerId, float]) -> planner.Decision:
    asked = planner.PlanRequest(
        participants=tuple(p.leader for p in request.participants),
        elements=request.spec.elements,
        itemsize=ITEM_SIZES.get(request.spec.dtype, 4),
        links=edges,
        up=up,
    )
    root = broadcast_root(request.spec)
    if root is None:
        return planner.plan(asked)
    speaker = next((p.leader for p in request.participants if p.cluster == root), None)
    if speaker is None:
        raise NoRoute(f"cluster {root!r}, whose tensors are to be broadcast, takes no part")
    return planner.plan_broadcast(asked, speaker)


def broadcast_root(spec: Spec) -> ClusterId | None:
    """The cluster whose tensors a broadcast copies: the name of its spec ends with `@cluster`."""
    return ClusterId(spec.name.rpartition("@")[2]) if spec.kind == "broadcast" else None


def _limits(directory: Directory, leaders: Mapping[ClusterId, PeerId]) -> dict[PeerId, float]:
    """What each leader may send in all, where it said so."""
    cards = ((directory.clusters.get(cluster), leader) for cluster, leader in leaders.items())
    return {leader: card.up for card, leader in cards if card is not None and card.up > 0}


def _edges(directory: Directory, leaders: Mapping[ClusterId, PeerId]) -> Edges:
    direct = {(c.cluster, link.neighbour): (c, link) for c in directory.clusters.values() for link in c.links}
    edges: Edges = {}
    for a, source in leaders.items():
        for b, target in leaders.items():
            if a != b and (estimate := _direct(direct, a, b) or _relayed(direct, directory.clusters, a, b)):
                edges[source, target] = estimate
    return edges


Direct = Mapping[tuple[ClusterId, ClusterId], tuple[ClusterCard, LinkCard]]


def _direct(direct: Direct, a: ClusterId, b: ClusterId) -> LinkEstimate | None:
    """What either end says of the link from `a` to `b`."""
    outward, inward = direct.get((a, b)), direct.get((b, a))
    if outward is None and inward is None:
        return None
    figures = [outward[1].bandwidth_out if outward else 0.0, inward[1].bandwidth_in if inward else 0.0]
    known = [x for x in figures if x > 0]
    rtts = [end[1].srtt for end in (outward, inward) if end and end[1].srtt > 0]
    return LinkEstimate(min(known) if known else None, min(rtts, default=0.0) / 2)


def _relayed(direct: Direct, relays: Iterable[ClusterId], a: ClusterId, b: ClusterId) -> LinkEstimate | None:
    """The best way over one relay, each of whose links it takes a share of."""
    best: LinkEstimate | None = None
    for relay in sorted(relays):
        first, second = _direct(direct, a, relay), _direct(direct, relay, b)
        if relay in (a, b) or first is None or second is None:
            continue
        bandwidths = [x.bandwidth for x in (first, second) if x.bandwidth]
        via = LinkEstimate(min(bandwidths) / 2 if bandwidths else None, first.delay + second.delay)
        if best is None or (via.bandwidth or 0.0) > (best.bandwidth or 0.0):
            best = via
    return best
