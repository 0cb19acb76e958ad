"""From what gossip knows of the links (`edges`) to a plan for one attempt.

Only the coordinator plans, and the plan's bytes are agreed, so its view of the links may be old or wrong at the
price of speed alone. An edge on which an earlier attempt failed is avoided if the others suffice (a blocked pair must
not stop a mesh that is otherwise connected).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from ictp2p.collectives import plan as plans
from ictp2p.collectives.planning import halves, planner
from ictp2p.collectives.running.windows import STAGING_BYTES
from ictp2p.core.cards import FREE, Limits
from ictp2p.core.directory import Directory
from ictp2p.core.edges import Edges, links_between
from ictp2p.core.grouping import groups, plan_groups
from ictp2p.core.overlay import COMPLETE
from ictp2p.errors import NoRoute, RemoteProtocolError
from ictp2p.sync.rounds.opening import PlanAnswer, PlanQuestion
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

_ENCODED = frozenset({"float32", "bfloat16", "float16"})
"""Types that codecs know; others travel as they are, whatever was asked for."""


def make_plan(directory: Directory, request: PlanQuestion, complete: int = COMPLETE) -> PlanAnswer:
    """Plan an attempt on the links that gossip knows.

    Args:
        directory: the cards.
        request: what to plan.
        complete: clusters up to which every two leaders stay connected.

    Raises:
        NoRoute: some participant cannot be reached from the others.
    """
    edges = links_between(directory, request.participants, complete)
    failed = {frozenset(pair) for pair in request.failures}
    limits = _limits(directory, request.participants)
    healthy = {pair: edge for pair, edge in edges.items() if frozenset(pair) not in failed}
    try:
        decision = _decide(request, healthy, limits)
    except NoRoute:
        decision = _decide(request, edges, limits)
    asked = _asked(request, edges, limits)
    running = planner.predict(asked, plans.decode(request.running)) if request.running else 0.0
    return PlanAnswer(decision.plan.encode(), decision.reason[:1024], decision.plan.seconds, running)


def asked_of(directory: Directory, request: PlanQuestion, complete: int = COMPLETE) -> planner.PlanRequest:
    """Put what is to be planned beside what gossip knows of the links, those that failed included."""
    edges = links_between(directory, request.participants, complete)
    return _asked(request, edges, _limits(directory, request.participants))


def check_plan(data: bytes, participants: tuple[Participant, ...]) -> str | None:
    """Say what is wrong with a plan's bytes for these participants, or None; the executor checks the elements."""
    try:
        plan = plans.decode(data)
    except RemoteProtocolError as error:
        return str(error)
    return plans.check(plan, [p.leader for p in participants], plan.elements)


def _decide(request: PlanQuestion, edges: Edges, limits: Mapping[PeerId, Limits]) -> planner.Decision:
    asked = _asked(request, edges, limits)
    if request.spec.grouping != "all":
        return plan_groups(asked, groups(request.spec, request.base, request.participants))
    match request.spec.kind:
        case "broadcast":
            return planner.plan_broadcast(asked, _root(request))
        case "collect":
            return halves.plan_collect(asked, _root(request))
        case "gather":
            return halves.plan_gather(asked)
        case "scatter":
            return halves.plan_scatter(asked)
    return planner.plan(asked)


def _asked(request: PlanQuestion, edges: Edges, limits: Mapping[PeerId, Limits]) -> planner.PlanRequest:
    return planner.PlanRequest(
        participants=tuple(p.leader for p in request.participants),
        elements=request.spec.elements,
        itemsize=ITEM_SIZES.get(request.spec.dtype, 4),
        links=edges,
        up={leader: limit.up for leader, limit in limits.items() if limit.up > 0},
        room={leader: max(limit.room, STAGING_BYTES) for leader, limit in limits.items()},
        codec=request.spec.codec if request.spec.dtype in _ENCODED else "none",
    )


def check_roots(plan: plans.Plan, spec: Spec, participants: Sequence[Participant]) -> str | None:
    """Say which elements a plan copies from, or adds up at, another cluster than the round is for, or None.

    Such a plan gives all of them the same bytes, so that no digest would tell: another's, or parts in another order.
    """
    match spec.kind:
        case "broadcast" | "collect":
            named = named_cluster(spec)
            parts = [(0, spec.elements if p.cluster == named else 0) for p in participants]
        case "gather" | "scatter":
            parts = list(pairwise(halves.cuts(spec.elements, len(participants))))
        case _:
            return None
    for share in plan.shares:
        first, end = parts[share.root]
        if share.start < share.stop and not first <= share.start < share.stop <= end:
            return f"elements [{share.start}, {share.stop}) are not those of cluster {participants[share.root].cluster}"
    return None


def _root(request: PlanQuestion) -> PeerId:
    """Who speaks for the cluster that a broadcast copies from, or a sum is collected at."""
    root = named_cluster(request.spec)
    speaker = next((p.leader for p in request.participants if p.cluster == root), None)
    if speaker is None:
        raise NoRoute(f"cluster {root!r}, without which there is no {request.spec.kind}, takes no part")
    return speaker


def named_cluster(spec: Spec) -> ClusterId:
    """The cluster that a specification is about: its name ends with `@cluster`."""
    return ClusterId(spec.name.rpartition("@")[2])


def _limits(directory: Directory, participants: Iterable[Participant]) -> dict[PeerId, Limits]:
    """What may be asked of each leader, as far as it said so."""
    cards = ((directory.clusters.get(p.cluster), p.leader) for p in participants)
    return {leader: FREE if card is None else Limits(card.up, card.room) for card, leader in cards}
