"""How long to wait before a suspicion becomes a verdict: the arithmetic, and nothing else.

SWIM waits a fixed time for a suspect to speak up. Lifeguard (Dadgar, Phillips, Currey: arXiv 1707.00788, section 3.2,
"Local Health Aware Suspicion") starts with a long wait and shortens it, logarithmically, with every further member
that suspects the same one independently: the first voice may be a sick listener, the fourth is not.

    minimum = multiplier * max(1, log10(members)) * probe interval
    maximum = minimum * maximum multiplier
    timeout = max(minimum, maximum - (maximum - minimum) * ln(confirmations + 1) / ln(needed + 1))

floored to milliseconds, counted from the start of the suspicion. A group too small to give `needed` confirmations
(beside the accuser and the accused) cannot be asked to: it uses the minimum at once.
"""

from __future__ import annotations

import math

from ictp2p.gossip.profile import SwimProfile


def limits(members: int, profile: SwimProfile) -> tuple[float, float]:
    """Return the shortest and the longest suspicion, in seconds, in a group of `members`."""
    scale = max(1.0, math.log10(max(1, members)))
    minimum = profile.suspicion_mult * scale * profile.probe_interval
    return minimum, minimum * profile.suspicion_max_mult


def needed(members: int, profile: SwimProfile) -> int:
    """Return how many confirmations bring a suspicion down to its minimum; 0 if the group cannot give them."""
    return profile.confirmations if members - 2 >= profile.confirmations else 0


def timeout(confirmations: int, wanted: int, minimum: float, maximum: float) -> float:
    """Return how long a suspicion lasts, in seconds since it began."""
    if wanted < 1:
        return minimum
    share = math.log(confirmations + 1) / math.log(wanted + 1)
    raw = maximum - (maximum - minimum) * share
    return max(minimum, math.floor(raw * 1000) / 1000)


class Suspicion:
    """One running suspicion: when it began, who confirmed it, and when it becomes a verdict."""

    __slots__ = ("_confirmed", "_maximum", "_minimum", "_origins", "_wanted", "deadline", "started")

    def __init__(self, origin: str, members: int, profile: SwimProfile, now: float) -> None:
        self.started = now
        self._origins = {origin}
        self._confirmed = 0
        self._wanted = needed(members, profile)
        self._minimum, self._maximum = limits(members, profile)
        self.deadline = self._due()

    def wants(self, origin: str) -> bool:
        """Whether the voice of this member would count: more are needed, and it is not among those that were heard."""
        return self._confirmed < self._wanted and origin not in self._origins

    def confirm(self, origin: str, now: float) -> bool:
        """Count one more accuser; True if it was new and wanted, and so is worth telling others."""
        if not self.wants(origin):
            return False
        self._origins.add(origin)
        self._confirmed += 1
        self.deadline = max(now, self._due())
        return True

    def settle(self, now: float) -> None:
        """Take evidence that no confirmation could improve: the wait drops to its minimum."""
        self._confirmed = self._wanted
        self.deadline = max(now, self._due())

    def postpone(self, seconds: float) -> None:
        """Do not count `seconds` in which this process itself could not have heard a refutation."""
        self.started += seconds
        self.deadline += seconds

    def _due(self) -> float:
        return self.started + timeout(self._confirmed, self._wanted, self._minimum, self._maximum)
