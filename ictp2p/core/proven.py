"""A plan that has been carried out stays, until another promises to beat what it took.

A prediction is as good as what is known of the links, and the fastest of many predictions is the one that errs the
most in its own favour (the "optimizer's curse"; Smith and Winkler, Management Science 52 (2006), 311). Links that a
plan uses are seen at work; those it leaves alone keep the figures of a short probe. So a plan made anew for each round
left good ones behind for worse: on simulated lines that nobody is told of, plans at 1.02 and 1.07 of what is possible
were followed by some at 1.18 and 1.20, whose predictions had been lower.

What a plan took, every leader sees: from the decision to open a round to the decision that it committed, agreement
included. The best plan known for a collective is kept with that figure, which follows every further round of it. What
the planner finds for the links as they are now has to promise less, and is not taken at its word: promises count as
many times what they say as was true of the last one that was put to the test, up to `WARY`. That factor goes back to 1
while nothing new is tried, so that another plan is tried now and then, and sooner the more it promises. If the links
have become slower, the kept plan's prediction shows it before the next round, and its figure after; where a round by it
fails it is kept no longer.

Only the coordinator's choice depends on this, and only in speed. Rounds shorter than `LEAST` are mostly agreement.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TypeAlias

from ictp2p.collectives import plan as plans
from ictp2p.collectives import planner
from ictp2p.sync.opening import PlanAnswer, PlanRequest
from ictp2p.sync.values import Close, Open, Participant, Spec, Value
from ictp2p.types import PeerId

LEAST = 1.0
"""Seconds of a round from which on it shows what its plan is worth."""
GAIN = 0.95
"""Part of what the kept plan takes that another has to promise: rounds of one plan differ by as much."""
WARY = 2.0
"""The most that a promise is doubted. One that is better than this by far is put to the test, though the last was not
kept at all: among links that are hardly known yet most plans promise too much, and each that is tried measures some."""
_NEWEST = 0.5
"""Weight of a plan's last round in its figure."""
_FORGIVEN = 0.03
"""Part of the distrust that goes with each round in which nothing new is tried."""
_COLLECTIVES = 8
"""Collectives of which a plan is kept: a program calls the same ones over and over, in turn."""

_Key: TypeAlias = tuple[Spec, tuple[PeerId, ...]]


@dataclass(slots=True)
class _Proven:
    """The best plan known for one collective."""

    plan: bytes
    round: int
    """The last that it was carried out in."""
    seconds: float
    """What it takes."""
    distrust: float
    """What the last new plan took over what it had promised, from 1 to `WARY`."""


class ProvenPlans:
    """Remembers what plans took."""

    def __init__(self) -> None:
        self._proven: OrderedDict[_Key, _Proven] = OrderedDict()
        self._opened: tuple[Open, float] | None = None

    def decided(self, value: Value, now: float) -> None:
        """Note what was decided: rounds begin and end."""
        opened, self._opened = self._opened, None
        if isinstance(value, Open):
            self._opened = value, now
        elif opened is not None and isinstance(value, Close) and _number(value) == _number(opened[0]):
            self._ended(opened[0], now - opened[1], committed=value.committed)

    def better(self, asked: planner.PlanRequest, request: PlanRequest, made: PlanAnswer) -> PlanAnswer:
        """Give the plan that is kept for such a request; or the one that was `made` now, if that should be faster.

        Args:
            asked: the request, with the links as they are now.
            request: what is to be planned.
            made: the planner's choice.
        """
        proven = self._proven.get(_key(request.spec, request.participants))
        if proven is None or proven.plan == made.plan:
            return made
        predicted = planner.predict(asked, plans.decode(proven.plan))
        seconds = max(proven.seconds, predicted)
        if not predicted or made.seconds * proven.distrust < GAIN * seconds:
            return made
        reason = f"took {proven.seconds:.3g} s in round {proven.round}; not proven: {made.reason}"
        return replace(made, plan=proven.plan, reason=reason[:1024], seconds=seconds)

    def _ended(self, opened: Open, took: float, *, committed: bool) -> None:
        key = _key(opened.spec, opened.participants)
        proven = self._proven.get(key)
        if not committed:
            if proven is not None and proven.plan == opened.plan:
                del self._proven[key]
        elif proven is not None and proven.plan == opened.plan:
            proven.round, proven.seconds = opened.round, proven.seconds + _NEWEST * (took - proven.seconds)
            proven.distrust += _FORGIVEN * (1 - proven.distrust)
        elif took >= LEAST:
            self._tried(key, opened, took)

    def _tried(self, key: _Key, opened: Open, took: float) -> None:
        promised = plans.decode(opened.plan).seconds
        distrust = min(max(1.0, took / promised), WARY) if promised > 0 else 1.0
        proven = self._proven.get(key)
        if proven is None or took < proven.seconds:
            self._proven[key] = _Proven(opened.plan, opened.round, took, distrust)
        else:
            proven.distrust = distrust
        self._proven.move_to_end(key)
        if len(self._proven) > _COLLECTIVES:
            self._proven.popitem(last=False)


def _key(spec: Spec, participants: tuple[Participant, ...]) -> _Key:
    return spec, tuple(each.leader for each in participants)


def _number(value: Open | Close) -> tuple[int, int]:
    return value.round, value.attempt
