"""Rounds in which not all average all: who does so with whom, and one plan for all of these groups.

Who is in a group follows from what was decided (`sync.rounds.pairs`, `modules`), so that every participant can tell
whether the plan that was agreed on is for the groups that are due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ictp2p.collectives import plan as plans
from ictp2p.collectives.planning import planner
from ictp2p.collectives.planning.topology import LinkEstimate
from ictp2p.core.edges import UNKNOWN_DELAY
from ictp2p.sync.rounds import modules
from ictp2p.sync.rounds.pairs import pairs
from ictp2p.sync.values import Participant, Spec
from ictp2p.types import PeerId


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


def _source(plan: plans.Plan) -> PeerId | None:
    return None if plan.source is None else PeerId(plan.source)


def plan_groups(asked: planner.PlanRequest, due: Sequence[Group]) -> planner.Decision:
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
    between = {(a, b): LinkEstimate(None, UNKNOWN_DELAY) for a in group.members for b in group.members if a != b}
    relays = {link.via for pair in between if (link := asked.links.get(pair)) is not None and link.via is not None}
    involved = relays.union(group.members)
    known = {pair: link for pair, link in asked.links.items() if involved.issuperset(pair)}
    up = {name: limit for name, limit in asked.up.items() if name in involved}
    links = {**between, **known}
    one = replace(asked, participants=group.members, elements=group.elements, links=links, up=up)
    return one, frozenset(involved)
