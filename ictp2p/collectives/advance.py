"""How far a collective is, as one participant sees it: the whole, and the share that is furthest behind.

All shares are meant to end at one time. Where a link is slower than planned, those that use it fall behind: the whole
then says that most is done, and the one furthest behind how long it will still take.
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
        shares: of the plan, in the order of their elements.
    """

    def __init__(self, shares: Sequence[Share]) -> None:
        shares = [share for share in shares if share.stop > share.start]
        self._starts = [share.start for share in shares]
        self._sizes = [share.stop - share.start for share in shares]
        self._done = [0] * len(shares)
        self._told = (-1, -1)

    @property
    def whole(self) -> float:
        """Part of all elements, from 0 to 1."""
        return sum(self._done) / max(1, sum(self._sizes))

    @property
    def least(self) -> float:
        """The same of the share that is furthest behind."""
        return min((done / size for done, size in zip(self._done, self._sizes, strict=True)), default=1.0)

    def add(self, start: int, stop: int) -> tuple[bool, bool]:
        """Count the results of `[start, stop)`, all of one share; say whether the whole, and the least, made a step."""
        self._done[bisect_right(self._starts, start) - 1] += stop - start
        told, self._told = self._told, (int(self.whole * STEPS), int(self.least * STEPS))
        return self._told[0] > told[0], self._told[1] > told[1]
