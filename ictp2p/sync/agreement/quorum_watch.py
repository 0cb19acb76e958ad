"""When a lost quorum is news: not at every suspicion, and not twice.

Two things may show that nothing can be decided: too many voters are suspected, or a proposal of this peer stays without
an answer. Neither is one by itself. Suspicions come and go within seconds while a mesh is busy, and a proposal takes
its round trips. So it is told only once it has lasted for `RoundProfile.quorum_deadline`, counted from the first of
both, and then once, until decisions are possible again, which is told as well. Nothing is given up meanwhile: whoever
hears of it may warn people, train on, or wait (`sync.two_level.patience`), and proposals are tried all the same.
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


class QuorumWatch:
    """Tells a quorum that is lost for long from one that is only slow.

    Args:
        deadline: seconds, as `RoundProfile.quorum_deadline`.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._stuck_since: float | None = None
        self._lost = False

    @property
    def due(self) -> float | None:
        """When a quorum that is still lost by then is news."""
        return None if self._stuck_since is None or self._lost else self._stuck_since + self._deadline

    def stuck(self, since: float, now: float) -> bool:
        """Note that nothing can be decided; say whether that is news by now.

        Args:
            since: when that began, where this is the first that we hear of it.
            now: seconds.
        """
        self._stuck_since = since if self._stuck_since is None else self._stuck_since
        if self._lost or now < self._stuck_since + self._deadline:
            return False
        self._lost = True
        return True

    def free(self) -> bool:
        """Note that decisions are possible; say whether that is news."""
        self._stuck_since = None
        regained, self._lost = self._lost, False
        return regained
