"""Giving an attempt up in its middle, for another plan, where that is over sooner.

A plan is as good as the measurements that it was made of. If a link has lost most of its bandwidth since, the attempt
goes on at the pace of that link, and the next round would be the first to spare it. Two things must agree before what
has been transferred is thrown away: the links as they are known now, on which the plan that runs and a new one are both
predicted, and the attempt's own pace, for a single measurement may be wrong. Both must promise that what is left takes
`DETOUR` times as long as all of the new plan, so that an error of that size costs nothing. The questions come after
`RoundProfile.replan`, and then ever more rarely: a short attempt is never asked about, and a long one seldom. Nor is a
plan made, which would hold up the attempt for as long, unless one as good as no plan can be would be worth it.

The pace is that of the results which come to the coordinator: of a copy those of other roots, of a reduction its own.
If none comes to it, as to the root of a broadcast, it sees no pace, and gives nothing up: nothing would confirm what
was measured.

Where the participants average in groups (`Spec.grouping`) an attempt is never given up for this. Who meets whom follows
from what was decided, so another plan has the same groups. A pair has one link, and no other plan. Of larger groups the
coordinator sees the pace of its own alone, so nothing would confirm a measurement of another's links; and the first
group that is done has voted, and would lose for the others' sake what a slow one among them loses for its own.
"""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.sync.profile import RoundProfile

DETOUR = 1.5
"""What is left must take this many times as long as the new plan, and `COST` more."""
COST = 1.0
"""Seconds that aborting and agreeing anew may take."""
MOST = 2
"""Attempts of a round that are given up for this."""

Ask = Callable[[bool], tuple[float, float]]
"""Gives the seconds that the running plan and a new one would take from start to end on the links as known now; 0 where
that is not known. Asked for a forecast only, it gives what no plan takes less than, and makes none."""


class Replanning:
    """Watches the attempt that is open, as its coordinator, which takes part in it."""

    def __init__(self, profile: RoundProfile) -> None:
        self._profile = profile
        self._done = 0.0
        self._next = float("inf")
        self._round = -1
        self.given_up = 0
        """Attempts of the newest round that were given up for another plan."""
        self.gave_up = False
        """Whether the newest attempt was given up for another plan: nobody failed in it, nor did it take too long."""

    def opened(self, number: int, now: float) -> None:
        """An attempt at round `number` begins."""
        if number != self._round:
            self._round, self.given_up = number, 0
        self._done, self.gave_up = 0.0, False
        self._next = now + self._profile.replan

    def progressed(self, done: float) -> None:
        """This peer holds so much of each result that is to come to it, from 0 to 1; 1 also where none is."""
        self._done = max(self._done, done)

    def wake(self) -> float | None:
        """When to look again."""
        return self._next if self.given_up < MOST else None

    def look(self, began: float, ask: Ask, now: float) -> str | None:
        """Say why to give the attempt up that `began` then; None: it goes on."""
        if now < self._next or self.given_up >= MOST:
            return None
        elapsed = now - began
        self._next = began + 2 * elapsed
        running, least = ask(True)
        if self._left(running, elapsed) <= DETOUR * least + COST:
            return None
        running, new = ask(False)
        left = self._left(running, elapsed)
        if not new or left <= DETOUR * new + COST:
            return None
        self.given_up += 1
        self.gave_up = True
        return f"another plan would take {new:.3g} s, this one takes {left:.3g} s more"

    def _left(self, running: float, elapsed: float) -> float:
        """Seconds that the attempt still takes, by the links or by its own pace, whichever are less."""
        pace = elapsed * (1 - self._done) / self._done if self._done else float("inf")
        return min((1 - self._done) * running, pace)
