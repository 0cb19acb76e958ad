"""A plan that has been carried out stays, until another promises to beat what it took.

A prediction is as good as what is known of the links, and the fastest of many predictions is the one that errs the
most in its own favour (the "optimizer's curse"; Smith and Winkler, Management Science 52 (2006), 311). So a plan made
anew for each round left good ones behind for worse: on simulated lines that nobody is told of, plans at 1.02 and 1.07
of what is possible were followed by some at 1.18 and 1.20, whose predictions had been lower.

What a plan took, every leader sees: from the decision to open a round to the decision that it committed, agreement
included. The best plan known for a collective is kept with that figure, which follows every further round of it.

Three others compete with it: the one for the links as they are measured now, the one for links and lines as wide as
they ever were (`lines`), and the best ring on these. The latter two come first where nothing was carried out yet. Each
has to promise less than the best one takes, and is not taken at its word: promises count as many times what they say as
was true of the last one of their kind that was put to the test. That factor goes back to 1 while nothing new is tried,
so that another plan is tried now and then, and sooner the more it promises. A trial that is given up in its middle
counts as well, whatever it was made for: the next attempt would begin with the like of it, and not with the plan for
which it was given up, which is one for links.

If links become slower, the kept plan's prediction grows before the next round, and what it takes with that round. If
that is `SLOWER` times what it took before, what was known of its links and of promises counts for nothing; nor do past
promises where it has become `FASTER`. What is chosen instead of it, since it should take longer now, is kept if it
takes less than that, be it more than the other one took once. Where a round by it fails it is kept no longer.

Only the coordinator's choice depends on this, and only in speed. Rounds shorter than `LEAST` are mostly agreement.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal, TypeAlias

from ictp2p.collectives import plan as plans
from ictp2p.collectives.codecs.prices import PRICES
from ictp2p.collectives.planning import planner
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.collectives.planning.topology import Pair
from ictp2p.core.lines import FEW, Lines
from ictp2p.core.planning import ITEM_SIZES
from ictp2p.errors import NoRoute
from ictp2p.sync.rounds.opening import PlanAnswer, PlanQuestion
from ictp2p.sync.values import Close, Open, Participant, Spec, Value
from ictp2p.types import PeerId

LEAST = 1.0
"""Seconds of a round from which on it shows what its plan is worth."""
GAIN = 0.95
"""Part of what the kept plan takes that another has to promise: rounds of one plan differ by as much."""
WARY = 8.0
"""The most that a promise is doubted."""
SLOWER = 1.5
"""Times what a plan took, or a plan for known lines promised, from which on the links are not what they were."""
FASTER = 1.25
"""Times what a plan takes that it took before, from which on the links are not what they were either."""
_SHORT = 0.1
"""Seconds promised for links as they are up to which no second plan is made: the round is mostly agreement."""
_NEWEST = 0.5
"""Weight of a plan's last round in its figure."""
_FORGIVEN = 0.01
"""Part of the distrust that goes with each round in which nothing new is tried."""
_COLLECTIVES = 8
"""Collectives of which a plan is kept: a program calls the same ones over and over, in turn."""

_Key: TypeAlias = tuple[Spec, tuple[PeerId, ...]]
_By: TypeAlias = Literal["links", "lines", "ring"]
"""What a plan was made for: links as they are measured; links and lines as wide as they ever were; and the best ring
on these, in which a line carries one connection each way, so that none takes from another."""


@dataclass(slots=True)
class _Proven:
    """The best plan known for one collective."""

    plan: bytes
    """Empty: the last round by it failed, and nothing is kept."""
    round: int
    """The last that it was carried out in."""
    seconds: float
    """What it takes."""
    predicted: float = 0.0
    """What was predicted for it when it was last chosen; 0: that is not known."""
    doubts: dict[_By, float] = field(default_factory=dict)
    """What the last new plan of a kind took over what it had promised, from 1 to `WARY`."""

    def worth(self, predicted: float) -> float:
        """Give the seconds that it should take now, if this is predicted; 0 if it does not fit the links any more."""
        return self.seconds * max(1.0, predicted / (self.predicted or predicted)) if predicted else 0.0

    def doubt(self, by: _By) -> float:
        return self.doubts.get(by, 1.0)

    def confirm(self, offers: list[tuple[_By, PlanAnswer]]) -> None:
        """Doubt promises for this very plan by what it takes: each of its rounds puts them to the test."""
        for by, answer in offers:
            if answer.plan == self.plan and answer.seconds > 0:
                self.doubts[by] = _doubt(self.seconds, answer.seconds)

    def forgive(self) -> None:
        self.doubts = {by: doubt + _FORGIVEN * (1 - doubt) for by, doubt in self.doubts.items()}


@dataclass(frozen=True, slots=True)
class _Offer:
    """The last new plan that was given."""

    by: _By = "links"
    plan: bytes = b""
    predicted: float = 0.0
    """By the same figures as a kept plan would be."""
    instead: float = 0.0
    """Seconds that the kept plan should have taken; 0: there was none that fits the links."""


class ProvenPlans:
    """Remembers what plans took."""

    def __init__(self) -> None:
        self.lines = Lines()
        self._proven: OrderedDict[_Key, _Proven] = OrderedDict()
        self._opened: tuple[Open, float] | None = None
        self._offered = _Offer()
        self._questioned = (b"", 0.0)
        """The last plan that another was weighed against while carried out, and what was then predicted of it."""
        self._outdone = -1
        """The last round of which an attempt was given up for a plan for links: that may be chosen now."""

    def decided(self, value: Value, now: float) -> None:
        """Note what was decided: rounds begin and end."""
        opened, self._opened = self._opened, None
        if isinstance(value, Open):
            self._opened = value, now
        elif opened is not None and isinstance(value, Close) and _number(value) == _number(opened[0]):
            self._ended(opened[0], now - opened[1], committed=value.committed)

    def better(self, asked: planner.PlanRequest, request: PlanQuestion, made: PlanAnswer) -> PlanAnswer:
        """Give the plan that is kept for such a request; or another one, if that should be faster.

        Args:
            asked: the request, with the links as they are now.
            request: what is to be planned.
            made: the planner's choice for `asked`.
        """
        self._given_up(request)
        if len(request.participants) <= FEW:
            self.lines.saw(asked.links, request.round)
        lines = self.lines.request(asked) if made.seconds >= _SHORT else None
        offers: list[tuple[_By, PlanAnswer]] = [("links", made)]
        if lines is not None:
            offers += [("ring", ring) for ring in _ring(lines, made)]
            offers.append(("lines", _planned(lines, made)))
        proven = self._proven.get(_key(request.spec, request.participants)) or _Proven(b"", 0, inf)
        links = lines or asked
        predicted = planner.predict(links, plans.decode(proven.plan)) if proven.plan else 0.0
        kept = proven.worth(predicted)
        proven.confirm(offers)
        if not kept and "links" not in proven.doubts and request.round != self._outdone:
            offers = [offer for offer in offers if offer[0] != "links" and offer[1].seconds >= LEAST] or offers
        new = [(by, answer) for by, answer in offers if answer.plan != proven.plan]
        by, best = min(new, key=lambda offer: offer[1].seconds * proven.doubt(offer[0]), default=("links", made))
        if not kept or (new and best.seconds * proven.doubt(by) < GAIN * kept):
            self._offered = _Offer(by, best.plan, planner.predict(links, plans.decode(best.plan)), kept)
            return best
        proven.predicted = predicted
        reason = f"took {proven.seconds:.3g} s in round {proven.round}; not proven: {best.reason}"
        return replace(made, plan=proven.plan, reason=reason[:1024], seconds=kept)

    def rival(self, asked: planner.PlanRequest, request: PlanQuestion, made: PlanAnswer) -> PlanAnswer:
        """Give what is `made` for an attempt under way, its promise as far in doubt as such promises are.

        Where none was put to the test yet, it is no better than known lines allow.
        """
        self._questioned = request.running, made.running
        proven = self._proven.get(_key(request.spec, request.participants))
        if proven is not None and "links" in proven.doubts:
            return replace(made, seconds=made.seconds * proven.doubt("links"))
        lines = self.lines.request(asked)
        least = 0.0 if lines is None else planner.predict(lines, plans.decode(made.plan))
        return replace(made, seconds=max(made.seconds, least))

    def _given_up(self, request: PlanQuestion) -> None:
        """Note that the attempt before has failed: the next is planned before that is decided here."""
        if self._opened is not None and (request.round, request.attempt) > _number(self._opened[0]):
            opened, self._opened = self._opened[0], None
            self._ended(opened, 0.0, committed=False)

    def _ended(self, opened: Open, took: float, *, committed: bool) -> None:
        key = _key(opened.spec, opened.participants)
        proven = self._proven.get(key)
        if committed and took >= LEAST and opened.spec.kind in ("sync", "reduce") and len(key[1]) <= FEW:
            self.lines.carried(_moved(opened), took)
        if not committed:
            self._failed(key, opened)
        elif proven is not None and proven.plan == opened.plan:
            self._again(proven, opened, took)
        elif took >= LEAST:
            self._tried(key, opened, took)

    def _failed(self, key: _Key, opened: Open) -> None:
        proven = self._proven.get(key)
        kept = proven is not None and proven.plan == opened.plan
        if proven is not None and kept:
            proven.plan, proven.seconds = b"", inf
        plan, predicted = self._questioned
        if plan != opened.plan:
            return
        # It was slow enough to think of another: perhaps it was given up for that.
        self._outdone, by = opened.round, self._offer(opened).by
        if kept or by != "links":  # else it was made without regard to lines, and says nothing of them
            self.lines.slowed(frozenset(_used(opened)), opened.round)
        if not kept:  # what it promised was in vain
            proven = self._remembered(key, proven or _Proven(b"", opened.round, inf))
            proven.doubts[by] = max(proven.doubt(by), _doubt(predicted, plans.decode(opened.plan).seconds))

    def _again(self, proven: _Proven, opened: Open, took: float) -> None:
        proven.round = opened.round
        if took >= SLOWER * proven.seconds:
            proven.seconds, proven.doubts = took, {}
            self.lines.slowed(frozenset(_used(opened)), opened.round)
            return
        if took * FASTER <= proven.seconds:
            proven.doubts = {}
        proven.seconds += _NEWEST * (took - proven.seconds)
        proven.forgive()

    def _tried(self, key: _Key, opened: Open, took: float) -> None:
        promised = plans.decode(opened.plan).seconds
        ratio = _doubt(took, promised)
        offered = self._offer(opened)
        by = offered.by
        proven = self._proven.get(key)
        doubts = {} if proven is None else proven.doubts
        cold = by not in doubts and ratio < SLOWER  # what it takes to make new connections may be a part of it
        doubts[by] = 1.0 + (ratio - 1.0) / 2 if cold else ratio
        if by != "links" and ratio >= SLOWER:
            self.lines.slowed(frozenset(_used(opened)), opened.round)
        if proven is None or took < (offered.instead or (proven.seconds if not offered.plan else inf)):
            proven = _Proven(opened.plan, opened.round, took, offered.predicted, doubts)
        self._remembered(key, proven)

    def _offer(self, opened: Open) -> _Offer:
        """How this plan was come by; one that was given elsewhere counts as made for the links."""
        return self._offered if opened.plan == self._offered.plan else _Offer()

    def _remembered(self, key: _Key, proven: _Proven) -> _Proven:
        self._proven[key] = proven
        self._proven.move_to_end(key)
        if len(self._proven) > _COLLECTIVES:
            self._proven.popitem(last=False)
        return proven


def _doubt(took: float, promised: float) -> float:
    return min(max(1.0, took / promised), WARY) if promised > 0 else 1.0


def _planned(lines: planner.PlanRequest, made: PlanAnswer) -> PlanAnswer:
    decision = planner.plan(lines)
    reason = f"for lines as wide as was seen: {decision.reason}"
    return replace(made, plan=decision.plan.encode(), reason=reason[:1024], seconds=decision.plan.seconds)


def _ring(lines: planner.PlanRequest, made: PlanAnswer) -> list[PlanAnswer]:
    try:
        return [_planned(replace(lines, only="ring"), made)]
    except NoRoute:
        return []


def _used(opened: Open) -> Iterator[Pair]:
    """The links that a plan's trees go over."""
    return (pair for pair, _ in _moved(opened))


def _moved(opened: Open) -> Iterator[tuple[Pair, float]]:
    """The bytes that a plan's trees carry over each link, share by share; at least, for a codec's chunks differ."""
    plan = plans.decode(opened.plan)
    each = ITEM_SIZES.get(opened.spec.dtype, 0) * (PRICES[plan.codec].least if plan.codec in PRICES else 0.0)
    for share in plan.shares:
        size = each * (share.stop - share.start)
        for a, b in Tree(share.root, share.reduce_parents, share.broadcast_parents).edges():
            yield (PeerId(plan.participants[a]), PeerId(plan.participants[b])), size


def _key(spec: Spec, participants: tuple[Participant, ...]) -> _Key:
    return spec, tuple(each.leader for each in participants)


def _number(value: Open | Close) -> tuple[int, int]:
    return value.round, value.attempt
