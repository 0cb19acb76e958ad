"""From what gossip knows of the links to a plan for one attempt.

Only the coordinator plans, and the plan's bytes are agreed, so its view of the links may be old or wrong at the
price of speed alone. A pair of clusters that has no connection of its own gets a virtual edge over the best relay;
the bulk room finds the way there by itself. In a mesh that is not complete (`overlay`) the lack of a connection means
nothing: such a pair is planned as one of which nothing is known yet, if either of the two can be dialed. An edge on
which an earlier attempt failed is avoided if the others suffice (a blocked pair must not stop a mesh that is otherwise
connected).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ictp2p.collectives import plan as plans
from ictp2p.collectives.planning import halves, planner
from ictp2p.collectives.planning.planner import LinkEstimate
from ictp2p.collectives.planning.topology import UNMEASURED
from ictp2p.collectives.running.windows import STAGING_BYTES
from ictp2p.core.cards import FREE, ClusterCard, Limits, LinkCard
from ictp2p.core.directory import Directory
from ictp2p.core.overlay import COMPLETE
from ictp2p.errors import NoRoute, RemoteProtocolError
from ictp2p.sync.rounds import modules
from ictp2p.sync.rounds.opening import PlanAnswer, PlanQuestion
from ictp2p.sync.rounds.pairs import pairs
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

_FASTEST_LINE = 3e8
"""Bytes/s above which two peers at one address are not taken for two machines behind one router."""

_UNKNOWN_DELAY = 0.1
"""Seconds one way between two clusters of which nothing is known."""

_ENCODED = frozenset({"float32", "bfloat16", "float16"})
"""Types that codecs know; others travel as they are, whatever was asked for."""

Edges = dict[tuple[PeerId, PeerId], LinkEstimate]


def make_plan(directory: Directory, request: PlanQuestion, complete: int = COMPLETE) -> PlanAnswer:
    """Plan an attempt on the links that gossip knows.

    Args:
        directory: the cards.
        request: what to plan.
        complete: clusters up to which every two leaders stay connected.

    Raises:
        NoRoute: some participant cannot be reached from the others.
    """
    leaders = {p.cluster: p.leader for p in request.participants}
    edges = _edges(directory, leaders, complete)
    failed = {frozenset(pair) for pair in request.failures}
    limits = _limits(directory, leaders)
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
    leaders = {p.cluster: p.leader for p in request.participants}
    return _asked(request, links_between(directory, request.participants, complete), _limits(directory, leaders))


def links_between(directory: Directory, participants: Iterable[Participant], complete: int = COMPLETE) -> Edges:
    """Give what gossip knows of the links between participants, by their leaders."""
    return _edges(directory, {p.cluster: p.leader for p in participants}, complete)


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
        return _plan_groups(asked, groups(request.spec, request.base, request.participants))
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


@dataclass(frozen=True, slots=True)
class Group:
    """Who averages, or copies from `root`, so many elements."""

    members: tuple[PeerId, ...]
    elements: int
    root: PeerId | None = None


def groups(spec: Spec, base: bytes, participants: Sequence[Participant]) -> tuple[Group, ...]:
    """Who averages or copies what with whom in a round; nothing where all average all.

    Args:
        spec: of the round.
        base: digest of the state that it starts from.
        participants: all of them.
    """
    leaders = {p.cluster: p.leader for p in participants}
    if spec.grouping == "pairs":
        met = pairs(base, tuple(leaders))
        return tuple(Group(tuple(leaders[name] for name in pair), spec.elements) for pair in met)
    if spec.grouping == "modules":
        return tuple(
            Group(
                tuple(leaders[c] for c in due.clusters), due.elements, None if due.root is None else leaders[due.root]
            )
            for due in modules.groups(participants)
        )
    return ()


def check_groups(plan: plans.Plan, spec: Spec, base: bytes, participants: Sequence[Participant]) -> str | None:
    """Say where a plan has other groups than follow from what was decided, or None."""
    planned = tuple(Group(tuple(map(PeerId, g.participants)), g.elements, _source(g)) for g in plan.groups)
    due = groups(spec, base, participants)
    return None if planned == due else f"the plan is for groups {planned}, due are {due}"


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


def _source(plan: plans.Plan) -> PeerId | None:
    return None if plan.source is None else PeerId(plan.source)


def _plan_groups(asked: planner.PlanRequest, due: Sequence[Group]) -> planner.Decision:
    """Plan each group apart. All move at once, so the round takes as long as whoever is in most of them.

    Let every group run at its own seconds over those of the round: then nobody, relays included, is asked for more than
    all of its lines, and all groups end together. So groups that share nobody cost the longest, not their sum.
    """
    made, busy = [], Counter[PeerId]()
    for group in due:
        one, involved = _alone(asked, group)
        chosen = planner.plan(one) if group.root is None else planner.plan_broadcast(one, group.root)
        made.append(chosen.plan)
        busy.update(dict.fromkeys(involved, chosen.plan.seconds))
    seconds = max(busy.values(), default=0.0)
    whole = plans.Plan(plans.GROUPS, asked.participants, (), 1, seconds, 0.0, groups=tuple(made))
    return planner.Decision(whole, f"{len(made)} groups, each by a plan of its own")


def _alone(asked: planner.PlanRequest, group: Group) -> tuple[planner.PlanRequest, frozenset[PeerId]]:
    """What is to be planned for one group, and whose lines that takes: its members', and those of their relays.

    Two members that no link is known between find a way, or fail the attempt, as they would alone.
    """
    between = {(a, b): LinkEstimate(None, _UNKNOWN_DELAY) for a in group.members for b in group.members if a != b}
    relays = {link.via for pair in between if (link := asked.links.get(pair)) is not None and link.via is not None}
    involved = relays.union(group.members)
    known = {pair: link for pair, link in asked.links.items() if involved.issuperset(pair)}
    up = {name: limit for name, limit in asked.up.items() if name in involved}
    links = {**between, **known}
    one = replace(asked, participants=group.members, elements=group.elements, links=links, up=up)
    return one, frozenset(involved)


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


def _limits(directory: Directory, leaders: Mapping[ClusterId, PeerId]) -> dict[PeerId, Limits]:
    """What may be asked of each leader, as far as it said so."""
    cards = ((directory.clusters.get(cluster), leader) for cluster, leader in leaders.items())
    return {leader: FREE if card is None else Limits(card.up, card.room) for card, leader in cards}


def _edges(directory: Directory, leaders: Mapping[ClusterId, PeerId], complete: int) -> Edges:
    living = directory.living()  # what the dead said of their links is no way for anything
    known = _measured(living, directory.clusters.keys() - {card.cluster for card in living})
    beside: dict[ClusterId, list[ClusterId]] = {}
    for a, b in known:
        beside.setdefault(a, []).append(b)
    sparse = len(living) > complete
    edges: Edges = {}
    for a, source in leaders.items():
        for b, target in leaders.items():
            if a == b:
                continue
            estimate = known.get((a, b))
            relay = _relay(known, beside, a, b) if estimate is None else None
            if estimate is not None and _one_machine(directory, source, target):
                estimate = _by_cores(estimate)
            elif estimate is None and sparse and _can_dial(directory, source, target):
                estimate = LinkEstimate(None, _UNKNOWN_DELAY if relay is None else _delay(known, a, relay, b))
            elif estimate is None and relay is not None:
                estimate = _over(edges, directory, known, (a, source), relay, (b, target))
            if estimate is not None:
                edges[source, target] = estimate
    return edges


Measured = Mapping[tuple[ClusterId, ClusterId], LinkEstimate]


def _measured(cards: Iterable[ClusterCard], dead: Collection[ClusterId] = ()) -> Measured:
    """What either end says of each link, but those to the dead, in both of its directions; sorted."""
    ends = {(card.cluster, link.neighbour): link for card in cards for link in card.links if link.neighbour not in dead}
    pairs = sorted({*ends, *((b, a) for a, b in ends)})
    return {(a, b): _both(ends.get((a, b)), ends.get((b, a))) for a, b in pairs}


def _both(outward: LinkCard | None, inward: LinkCard | None) -> LinkEstimate:
    """The link from the one that says `outward` to the one that says `inward`; not both are missing."""
    figures = [outward.bandwidth_out if outward else 0.0, inward.bandwidth_in if inward else 0.0]
    known = [x for x in figures if x > 0]
    rtts = [end.round_trip for end in (outward, inward) if end and end.round_trip > 0]
    bounds = (outward.at_least_out if outward else 0.0, inward.at_least_in if inward else 0.0)
    return LinkEstimate(min(known) if known else None, min(rtts, default=0.0) / 2, at_least=max(bounds))


def _relay(
    known: Measured, beside: Mapping[ClusterId, Sequence[ClusterId]], a: ClusterId, b: ClusterId
) -> ClusterId | None:
    """The cluster over which the way from `a` to `b` is widest; unmeasured ones only if there is nothing else."""
    between = [relay for relay in beside.get(a, ()) if relay != b and (relay, b) in known]
    return max(between, key=lambda relay: _width(known, a, relay, b), default=None)


def _width(known: Measured, a: ClusterId, relay: ClusterId, b: ClusterId) -> float:
    return min((x.bandwidth for x in (known[a, relay], known[relay, b]) if x.bandwidth), default=0.0)


def _delay(known: Measured, a: ClusterId, relay: ClusterId, b: ClusterId) -> float:
    return known[a, relay].delay + known[relay, b].delay


def _over(
    edges: Edges,
    directory: Directory,
    known: Measured,
    a: tuple[ClusterId, PeerId],
    relay: ClusterId,
    b: tuple[ClusterId, PeerId],
) -> LinkEstimate:
    """A virtual edge over a relay, whose own links it shares with all else that they carry: these are added too."""
    width, delay = _width(known, a[0], relay, b[0]) or None, _delay(known, a[0], relay, b[0])
    card = directory.clusters.get(relay)
    if card is None:
        return LinkEstimate(width / 2 if width else None, delay)
    edges.setdefault((a[1], card.leader), known[a[0], relay])
    edges.setdefault((card.leader, b[1]), known[relay, b[0]])
    return LinkEstimate(width, delay, card.leader)


def _one_machine(directory: Directory, source: PeerId, target: PeerId) -> bool:
    """Whether two peers are dialed at one address, but for the port."""
    ends = [card.endpoint() for card in map(directory.peers.get, (source, target)) if card is not None]
    hosts = {end.host for end in ends if end is not None}
    return len(ends) == 2 and len(hosts) == 1 and None not in ends


def _by_cores(link: LinkEstimate) -> LinkEstimate:
    """Take a fast link inside one machine for what it is: no line, but the time of cores, which is reckoned apart.

    What was measured of it is what was left of the cores then. As a line it would favour schedules that use most
    links side by side, and these cost the cores more.
    """
    if link.bandwidth is None or not _FASTEST_LINE <= link.bandwidth < UNMEASURED:
        return link
    return replace(link, bandwidth=UNMEASURED)


def _can_dial(directory: Directory, source: PeerId, target: PeerId) -> bool:
    """Whether one of two peers can dial the other, as far as their cards say."""
    cards = (directory.peers.get(source), directory.peers.get(target))
    return any(card is not None and card.address for card in cards)
