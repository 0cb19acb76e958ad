"""When contributions come, and until when a round should wait for the rest: the median arrival plus k times the MAD.

A fixed timeout is a guess: too long, and one slow cluster costs all the others their time; too short, and a hiccup
drops clusters that are well. What a cluster's lateness is worth waiting for shows in how the arrivals scatter. Their
median absolute deviation (Hampel, 1974) is used because half of the arrivals may be anything without moving it: the
straggler that is to be judged does not set the measure that it is judged by. Deviations are from the median arrival
of their own round, so that phases of another length do not count as scatter.

A round that asks for less than everybody (`Spec.quorum`) closes its door at *median + k MAD* of the last rounds, but
not before its quorum has come, and never later than the straggler timeout: a quorum makes a round begin sooner, never
later, and nothing waits for one that cannot be reached. All this is the coordinator's own book. It decides whom to
wait for, which any decision may get wrong at the price of speed; who takes part is agreed on with the OPEN.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median, median_high

from ictp2p.sync.values import Spec
from ictp2p.types import ClusterId

_ROUNDS = 8
"""Rounds that are remembered: enough to know the scatter, few enough to follow it."""
_ROUNDING = 1e-9
"""What a product of a share and a number may be above a whole number that it is: 0.28 of 25 are 7.000000000000001."""


class Arrivals:
    """The arrivals of the round to come, and how those of the last rounds scattered."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._at: dict[ClusterId, float] = {}
        self._scatter: deque[list[float]] = deque(maxlen=_ROUNDS)

    @property
    def deviation(self) -> float | None:
        """Median absolute deviation of the last rounds' arrivals in seconds; None if there were none to compare."""
        pooled = [each for round_ in self._scatter for each in round_]
        return median(pooled) if pooled else None

    def came(self, clusters: Iterable[ClusterId], now: float) -> None:
        """These stand READY for the round to come, or for the one that is open without them; the first time counts."""
        for name in clusters:
            self._at.setdefault(name, now)

    def committed(self, expected: Iterable[ClusterId], now: float) -> None:
        """The round is over; whoever of those expected has not come by now counts as coming now.

        Args:
            expected: the clusters that were worth waiting for when it was opened.
            now: seconds.
        """
        at = [self._at.get(name, now) for name in expected]
        self._at.clear()
        if len(at) > 1:
            middle = median_high(at)
            self._scatter.append([abs(each - middle) for each in at])

    def door(self, spec: Spec, expected: int, standing: Iterable[ClusterId], least: float) -> float | None:
        """Until when those who are missing are waited for; None if these arrivals do not say.

        Args:
            spec: what the round is for: its quorum, and its k.
            expected: number of clusters that are worth waiting for, those that have come among them.
            standing: those that have come.
            least: seconds after the median arrival that they have in any case.
        """
        deviation = self.deviation
        at = sorted(self._at[name] for name in standing)
        needed = max(1, math.ceil(spec.quorum * expected - _ROUNDING))
        if spec.quorum >= 1.0 or deviation is None or len(at) < needed:
            return None
        middle = at[min(needed, expected // 2 + 1) - 1]
        return max(at[needed - 1], middle + max(least, spec.spread * deviation))
