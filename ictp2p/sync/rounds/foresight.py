"""Having the next attempt planned while nobody waits for it.

A plan takes the coordinator's thread a tenth of a second among eight clusters, and half a second among sixty-four. Made
once the last of them is READY it is a part of every round, in which all wait. What it is made of is known before: which
collective comes next shows in those that came, as programs repeat themselves, and who takes part in whom the view has.
So the planner is asked once a round has been over for `REST`, and ever more rarely after that, for links are measured
all the time. It keeps what it made as long as they are no worse (`core.standing`), so most of these questions cost
little, and a wrong guess a plan that nobody uses. Who calls again at once has the plan made then: what links carried in
the round before is just being told.
"""

from __future__ import annotations

from collections import OrderedDict

from ictp2p.sync.rounds.opening import Opener, elect_spec
from ictp2p.sync.rounds.readies import RollCall
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import Open, Participant, Spec, Value
from ictp2p.types import ClusterId, PeerId

REST = 1.0
"""Seconds after a round until the next one is planned; then twice as many, and so on."""
LEAST = 0.3
"""Seconds from which on a collective is foreseen: of those that take less plans are kept, or quickly made."""
_SPECS = 16
"""Collectives that are remembered."""


class Foresight:
    """What probably comes next, at one peer.

    Args:
        opener: is asked for plans.
        sight: beliefs about the clusters.
    """

    def __init__(self, opener: Opener, sight: Sight) -> None:
        self._opener = opener
        self._sight = sight
        self._took: OrderedDict[Spec, float] = OrderedDict()
        """Seconds of the last round of each."""
        self._followers: dict[Spec, Spec] = {}
        """What came after it the last time."""
        self._last: Spec | None = None
        self._over_at = 0.0
        self._ask_at = 0.0

    def committed(self, opened: Open | None, took: float, now: float) -> None:
        """A round has ended, and took so many seconds; None: what it was has been missed."""
        self._over_at, self._ask_at = now, now + REST
        before, self._last = self._last, None
        if opened is None:
            return
        self._last = opened.spec
        self._took[opened.spec] = took
        self._took.move_to_end(opened.spec)
        if before is not None:
            self._followers[before] = opened.spec
        if len(self._took) > _SPECS:
            self._followers.pop(self._took.popitem(last=False)[0], None)

    def look(self, tip: Value, roll: RollCall, now: float) -> float | None:
        """Have the attempt that `roll` is waited for with planned, if it is time; say when to look again."""
        if self._last is None or roll.attempt > 1:
            return None
        spec = self._spec(self._last, roll)
        leaders = self._leaders(spec, roll)
        if self._took.get(spec, 0.0) < LEAST or len(leaders) < 2:
            return None
        if now >= self._ask_at:
            self._ask_at = now + max(REST, now - self._over_at)
            parts = tuple(Participant(name, leader, 0, 0.0) for name, leader in sorted(leaders.items()))
            self._opener.foresee(tip, spec, parts)
        return self._ask_at

    def _spec(self, last: Spec, roll: RollCall) -> Spec:
        return elect_spec(roll.standing, self._sight.mine) if roll.standing else self._followers.get(last, last)

    def _leaders(self, spec: Spec, roll: RollCall) -> dict[ClusterId, PeerId]:
        there = {name: leader for name, (leader, ready) in roll.standing.items() if ready.spec == spec}
        return there | {name: self._sight.clusters[name].leader for name in roll.absent}
