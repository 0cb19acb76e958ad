"""A plan that stands while it is as good as when it was made.

Among many participants planning takes seconds of the coordinator's only thread, and finds about the same in each round:
of thousands of links some are always measured a little anew. To predict what the former plan would take on the links as
they are now, and what no plan can beat on them, takes a hundredth of that. As long as the one keeps its distance from
the other, the plan is kept. What the bound cannot show, a link that would now be worth more than it is used for, is
found when a plan has stood for some rounds and is made anew in any case. Few participants are planned for each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ictp2p.collectives import plan as plans
from ictp2p.collectives import planner
from ictp2p.collectives.bounds import lower_bound
from ictp2p.collectives.topology import build
from ictp2p.core.directory import Directory
from ictp2p.core.overlay import COMPLETE
from ictp2p.core.planning import asked_of, make_plan
from ictp2p.sync.opening import PlanAnswer, PlanRequest

MANY = 16
"""Up to this many participants every round is planned: it takes some tens of milliseconds."""
STANDS = 6
"""Rounds after the one that it was made for in which a plan may be used again."""
WORSE = 1.05
"""Factor by which its distance from the bound may grow: the planner itself thinks nothing of as much."""


@dataclass(frozen=True, slots=True)
class _Standing:
    request: PlanRequest
    answer: PlanAnswer
    distance: float
    """Predicted time by the lower bound, when it was made."""


class StandingPlan:
    """Plans the attempts of one coordinator; see the module's docstring.

    Args:
        complete: clusters up to which every two leaders stay connected.
    """

    def __init__(self, complete: int = COMPLETE) -> None:
        self._complete = complete
        self._standing: _Standing | None = None

    def answer(self, directory: Directory, request: PlanRequest) -> PlanAnswer:
        """Answer with the plan that stands, or with one made now from what is in the directory.

        Raises:
            NoRoute: some participant cannot be reached from the others.
        """
        if not _may_stand(request):
            return make_plan(directory, request, self._complete)
        asked = asked_of(directory, request, self._complete)
        kept = self._kept(request, asked)
        if kept is not None:
            return kept
        answer = make_plan(directory, request, self._complete)
        self._standing = _Standing(request, answer, _distance(asked, answer))
        return answer

    def _kept(self, request: PlanRequest, asked: planner.PlanRequest) -> PlanAnswer | None:
        standing = self._standing
        if standing is None or not 0 <= request.round - standing.request.round <= STANDS:
            return None
        if request.spec != standing.request.spec:
            return None
        if not 0.0 < _distance(asked, standing.answer) <= WORSE * standing.distance:
            return None
        seconds = planner.predict(asked, plans.decode(standing.answer.plan))
        since = f"as planned for round {standing.request.round}: {standing.answer.reason}"
        return replace(standing.answer, reason=since[:1024], seconds=seconds)


def _may_stand(request: PlanRequest) -> bool:
    """Whether a plan for it could be one that was made before, and would be worth it."""
    alike = request.spec.kind in ("sync", "reduce") and request.spec.grouping == "all"
    return alike and len(request.participants) > MANY and not request.failures and not request.running


def _distance(asked: planner.PlanRequest, answer: PlanAnswer) -> float:
    """Predicted time by what no plan can beat; 0 if the plan does not fit the links, or is for others."""
    topology = build(asked.participants, asked.links, asked.up, asked.down, asked.trunks)
    bound = lower_bound(topology, float(asked.elements * asked.itemsize))
    return planner.predict(asked, plans.decode(answer.plan)) / bound if bound > 0 else 0.0
