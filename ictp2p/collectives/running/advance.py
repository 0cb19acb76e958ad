"""How far a collective is, as one participant sees it: the whole, and the share that is furthest behind.

All shares are meant to end at one time. Where a link is slower than planned, those that use it fall behind: the whole
then says that most is done, and the one furthest behind how long it will still take. Only those shares count whose
result comes here (`Plan.results`): of others nothing is ever told, and they would seem not to have begun.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ictp2p.collectives.plan import Share

STEPS = 20
"""In how many steps it is told: enough for a bar, too few to matter."""


class Advance:
    """Counts the elements whose result is here.

    Args:
        shares: of the plan, whose result is to come here, in the order of their elements.
    """

    def __init__(self, shares: Sequence[Share]) -> None:
        shares = [share for share in shares if share.stop > share.start]
        self._starts = [share.start for share in shares]
        self._sizes = [share.stop - share.start for share in shares]
        self._done = [0] * len(shares)
        self._all, self._here = max(1, sum(self._sizes)), 0
        self._told = (-1, -1)
        self._last = 0
        """How many shares have made no more steps than was told of the one that is furthest behind."""

    @property
    def whole(self) -> float:
        """Part of all these elements, from 0 to 1."""
        return self._here / self._all

    @property
    def least(self) -> float:
        """The same of the share that is furthest behind; 1 if none is to come."""
        return min((done / size for done, size in zip(self._done, self._sizes, strict=True)), default=1.0)

    def add(self, start: int, stop: int) -> tuple[bool, bool]:
        """Count the results of `[start, stop)`, all of one share; say whether the whole, and the least, made a step."""
        share, told, least = bisect_right(self._starts, start) - 1, self._told, self._told[1]
        self._last -= self._steps(share) <= least
        self._done[share] += stop - start
        self._here += stop - start
        self._last += self._steps(share) <= least
        if not self._last:
            steps = [self._steps(each) for each in range(len(self._done))]
            least = min(steps)
            self._last = steps.count(least)
        self._told = (int(self.whole * STEPS), least)
        return self._told[0] > told[0], self._told[1] > told[1]

    def _steps(self, share: int) -> int:
        return int(self._done[share] / self._sizes[share] * STEPS)
