"""A plan that stands while it is as good as when it was made.

Among many participants planning takes tenths of a second of the coordinator's only thread, and finds about the same in
each round: of thousands of links some are always measured a little anew. To predict what the former plan would take on
the links as they are now, and what no plan can beat on them, takes a fraction of that. As long as the one keeps its
distance from the other, the plan is kept. What the bound cannot show, a link that would now be worth more than it is
used for, is found when a plan has stood for some rounds and is made anew in any case.

For few participants planning takes milliseconds, which a short round is shorter than: in one of 4 bytes between two it
was half of all that the coordinator did. A plan that takes no longer than `QUICK` is kept while the links have not made
it slower by more than making another would cost. For few participants and many bytes every round is planned, once: what
was asked for before its time (`sync.rounds.foresight`) stands for that round while it keeps its distance, as one for
many does, and would take no longer than when it was made either. For the bound may have come down with it by one link
that all plans need, and another would still spare the rest of them what this one asks. Only who is at the bound has
nothing to gain.

For an attempt after the first nothing stands but what was made for it: by what stood the one before has just ended, and
was given up for another plan perhaps, which a distance from the bound does not show.

What stands is answered with the seconds that it should take by now, for how long everybody waits follows from them: so
many times what they were as its prediction has grown. Where that fell they stay. What was measured to be better may be
so for a moment, and to wait too long for who hangs costs a while, where too short a wait would abort a round that is on
its way.

What is planned anew has to be better than what the rounds before have shown (`proven`). For links that are known as
they were nothing is planned, nor predicted, anew: equal requests give equal plans.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from ictp2p.collectives import plan as plans
from ictp2p.collectives.planning import planner
from ictp2p.core.directory import Directory
from ictp2p.core.edges import links_between
from ictp2p.core.lines import FEW
from ictp2p.core.overlay import COMPLETE
from ictp2p.core.planning import asked_of, make_plan
from ictp2p.core.proven import ProvenPlans
from ictp2p.sync.rounds.opening import PlanAnswer, PlanQuestion
from ictp2p.sync.values import Open, Spec, Value

MANY = 16
"""Up to this many participants planning takes some tens of milliseconds."""
QUICK = 0.1
"""Predicted seconds up to which planning for few is dearer than what it finds: `WORSE` of it is `PLANNING`."""
PLANNING = 0.005
"""Seconds that it takes for a few participants, at least."""
SPECS = 8
"""Collectives whose plans are kept at once: a program calls the same ones over and over, in turn."""
STANDS = 6
"""Rounds after the one that it was made for in which a plan may be used again."""
WORSE = 1.05
"""Factor by which its distance from the bound may grow: the planner itself thinks nothing of as much."""


@dataclass(frozen=True, slots=True)
class _Standing:
    request: PlanQuestion
    asked: planner.PlanRequest
    """The same beside what was known of the links."""
    made: PlanAnswer
    """What was planned for these."""
    answer: PlanAnswer
    """What was answered, since rounds before had shown something better perhaps."""
    predicted: float
    """Seconds that were predicted for it on these links; the answer's may be what it took, or what lines promise."""
    distance: float
    """These by the lower bound; 0 for one that is quick and for few."""


class StandingPlan:
    """Plans the attempts of one coordinator; see the module's docstring.

    Args:
        complete: clusters up to which every two leaders stay connected.
    """

    def __init__(self, complete: int = COMPLETE) -> None:
        self._complete = complete
        self._standing: OrderedDict[Spec, _Standing] = OrderedDict()
        self._proven = ProvenPlans()

    def decided(self, directory: Directory, value: Value, now: float) -> None:
        """Note what was decided, whoever coordinates: what links carry and what rounds take is seen by all."""
        if isinstance(value, Open) and len(value.participants) <= FEW:
            links = links_between(directory, value.participants, self._complete)
            self._proven.lines.saw(links, value.round)
        self._proven.decided(value, now)

    def answer(self, directory: Directory, request: PlanQuestion) -> PlanAnswer:
        """Answer with the plan that stands, or with one made now from what is in the directory.

        Raises:
            NoRoute: some participant cannot be reached from the others.
        """
        asked = asked_of(directory, request, self._complete)
        if request.forecast:
            return _forecast(request, asked)
        if not _may_stand(request):
            made = make_plan(directory, request, self._complete)
            return self._proven.rival(asked, request, made) if request.running else made
        standing = self._standing.get(request.spec)
        if standing is not None and (kept := _kept(standing, request, asked)) is not None:
            return kept
        if standing is not None and standing.asked == asked:
            made = standing.made
        else:
            made = make_plan(directory, request, self._complete)
        answer = self._proven.better(asked, request, made)
        predicted, distance = answer.seconds, 0.0
        if not _quick(request, answer):
            predicted = planner.predict(asked, plans.decode(answer.plan))
            distance = _distance(asked, predicted)
        self._standing[request.spec] = _Standing(request, asked, made, answer, predicted, distance)
        self._standing.move_to_end(request.spec)
        if len(self._standing) > SPECS:
            self._standing.popitem(last=False)
        return answer


def _kept(standing: _Standing, request: PlanQuestion, asked: planner.PlanRequest) -> PlanAnswer | None:
    """Give the plan that stands, if it is one for `request` and as good as it was."""
    answer = standing.answer
    made_for_it = (request.round, request.attempt) == (standing.request.round, standing.request.attempt)
    if not made_for_it and (request.attempt > 1 or (_few(request) and not _quick(request, answer))):
        return None
    if not 0 <= request.round - standing.request.round <= STANDS:
        return None
    seconds = answer.seconds
    if asked != standing.asked:
        now = planner.predict(asked, plans.decode(answer.plan))
        if not (now and standing.predicted and _as_good(standing, request, asked, now)):
            return None
        seconds *= max(1.0, now / standing.predicted)
    since = "" if made_for_it else f"as planned for round {standing.request.round}: "
    return replace(answer, reason=(since + answer.reason)[:1024], seconds=seconds)


def _as_good(standing: _Standing, request: PlanQuestion, asked: planner.PlanRequest, now: float) -> bool:
    """Whether the plan that stands, for which so many seconds are predicted now, is about what it was."""
    if _quick(request, standing.answer):
        return now <= WORSE * standing.predicted + PLANNING
    distance = _distance(asked, now)
    if not 0.0 < distance <= WORSE * standing.distance:
        return False
    return not _few(request) or distance < WORSE or now <= WORSE * standing.predicted


def _forecast(request: PlanQuestion, asked: planner.PlanRequest) -> PlanAnswer:
    """Predict the plan under way, beside what none can beat; that is known of sums for everybody."""
    least = planner.at_least(asked) if request.spec.kind in ("sync", "reduce") else 0.0
    return PlanAnswer(b"", "what no plan can beat", least, planner.predict(asked, plans.decode(request.running)))


def _few(request: PlanQuestion) -> bool:
    return len(request.participants) <= MANY


def _quick(request: PlanQuestion, answer: PlanAnswer) -> bool:
    return _few(request) and answer.seconds <= QUICK


def _may_stand(request: PlanQuestion) -> bool:
    """Whether a plan for it could be one that was made before."""
    alike = request.spec.kind in ("sync", "reduce") and request.spec.grouping == "all"
    return alike and not request.failures and not request.running


def _distance(asked: planner.PlanRequest, predicted: float) -> float:
    """Predicted time by what no plan can beat; 0 if the plan does not fit the links, or is for others."""
    bound = planner.at_least(asked)
    return predicted / bound if bound > 0 else 0.0
