"""Plans of one half of an all-reduce: collect sums at one participant, scatter them over all, or gather copies.

A share that only climbs, or only descends, has one tree; the planner knows the best ones for a copy from a root, and a
sum towards it is that copy backwards over links turned around. Where every participant takes an equal part and all of
them are connected, the direct exchange is what remains: each link carries each element once, and nothing beats that as
long as access links, not single pairs, are the bottleneck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ictp2p.collectives.plan import BROADCAST, REDUCE, Plan, Share
from ictp2p.collectives.planning.planner import Decision, PlanRequest, Ways, plan_broadcast, roomy, ways
from ictp2p.types import PeerId


def cuts(elements: int, parts: int) -> list[int]:
    """Where a vector is cut into equal parts; the first of `parts + 1` is 0, the last is its end."""
    return [elements * n // parts for n in range(parts + 1)]


def plan_gather(request: PlanRequest) -> Decision:
    """Plan that each participant copies its part of the vector to all others.

    Raises:
        NoRoute: some participant cannot be reached.
    """
    return _parts(request, plan_broadcast, ways(request), BROADCAST)


def plan_scatter(request: PlanRequest) -> Decision:
    """Plan that each participant gets the sum of its part of the vector.

    Raises:
        NoRoute: some participant cannot be reached.
    """
    return _parts(request, plan_collect, ways(_backwards(request)), REDUCE)


def plan_collect(request: PlanRequest, root: PeerId, known: Ways | None = None) -> Decision:
    """Plan that `root` gets the sum of the whole vector.

    Args:
        request: what is to be planned for.
        root: who gets it.
        known: the `ways` of a request for these participants, and these links turned around; None: they are sought.

    Raises:
        ConfigError: `root` is not a participant.
        NoRoute: some participant does not reach it.
    """
    found = plan_broadcast(_backwards(request), root, known)
    shares = tuple(Share(s.start, s.stop, s.root, s.broadcast_parents, s.broadcast_parents) for s in found.plan.shares)
    return Decision(_with(request, found.plan, REDUCE, shares, found.plan.seconds, found.plan.way), found.reason)


def _backwards(request: PlanRequest) -> PlanRequest:
    """The same over links turned around."""
    links = {(b, a): link for (a, b), link in request.links.items()}
    return replace(request, links=links, up=request.down, down=request.up)


def _parts(
    request: PlanRequest, one: Callable[[PlanRequest, PeerId, Ways], Decision], known: Ways, kind: str
) -> Decision:
    """Put the plans for each participant's part one behind the other; they share links, so their times add up."""
    ends = cuts(request.elements, len(request.participants))
    plans = [
        one(replace(request, elements=stop - start), name, known).plan
        for name, start, stop in zip(request.participants, ends, ends[1:], strict=False)
    ]
    shares = tuple(
        Share(s.start + start, s.stop + start, s.root, s.reduce_parents, s.broadcast_parents)
        for plan, start in zip(plans, ends, strict=False)
        for s in plan.shares
    )
    first = min(plans, key=lambda plan: plan.chunk)
    seconds, way = sum(plan.seconds for plan in plans), max(plan.way for plan in plans)
    made = _with(request, first, kind, shares, seconds, way)
    return Decision(made, f"{len(plans)} parts, each by a tree of its own")


def _with(request: PlanRequest, plan: Plan, kind: str, shares: tuple[Share, ...], seconds: float, way: float) -> Plan:
    made = Plan(kind, plan.participants, shares, plan.chunk, seconds, min(plan.bound, seconds), way=way)
    return roomy(request, made) if kind == REDUCE else made
