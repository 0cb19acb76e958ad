"""When a lost quorum is news: not at every suspicion, and not twice.

Two things may show that nothing can be decided: too many voters are suspected, or a proposal of this peer stays without
an answer. Neither is one by itself. Suspicions come and go within seconds while a mesh is busy, and a proposal takes
its round trips. So it is told only once it has lasted for `RoundProfile.quorum_deadline`, counted from the first of
both, and then once, until decisions are possible again, which is told as well. Nothing is given up meanwhile: whoever
hears of it may warn people, train on, or wait (`sync.two_level.patience`), and proposals are tried all the same.

Counted is only while this process looks. One that stood still (its disk took long, it was stopped, its loop was busy)
asked nobody and heard nobody in that time, and does not hold it against the voters, as membership does not
(`Swim.lagged`). So it looks again and again while it counts, and of the time since the last look no more counts than
it takes from one look to the next. That never starves: a process that is late for each look counts them all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.machine import Notice
from ictp2p.types import PeerId


@dataclass(frozen=True, slots=True)
class QuorumLost(Notice):
    """Nothing can be decided for now: `missing` of `voters` are suspected, or do not answer in time."""

    voters: tuple[PeerId, ...]
    missing: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class QuorumRegained(Notice):
    """Decisions are possible again."""


_LOOKS = 8
"""So many looks go into a deadline. More of them wake a process that is stuck more often; with fewer a stall that is
shorter than the time from one look to the next counts for more of the deadline."""


class QuorumWatch:
    """Tells a quorum that is lost for long from one that is only slow, and from a process that was late by itself.

    Args:
        deadline: seconds, as `RoundProfile.quorum_deadline`.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._looked_at: float | None = None
        """When nothing could be decided, the last time that this was asked; None while decisions are possible."""
        self._news_at = 0.0
        """When a quorum that is still lost by then is news, if this process is late no more."""
        self._lost = False

    @property
    def due(self) -> float | None:
        """When to look again."""
        if self._looked_at is None or self._lost:
            return None
        return min(self._looked_at + self._deadline / _LOOKS, self._news_at)

    def stuck(self, now: float) -> bool:
        """Note that nothing can be decided; say whether that is news by now."""
        if self._looked_at is None:
            self._news_at = now + self._deadline
        else:
            late = now - self._looked_at - self._deadline / _LOOKS
            self._news_at += max(0.0, late)
        self._looked_at = now
        if self._lost or now < self._news_at:
            return False
        self._lost = True
        return True

    def free(self) -> bool:
        """Note that decisions are possible; say whether that is news."""
        self._looked_at = None
        regained, self._lost = self._lost, False
        return regained
