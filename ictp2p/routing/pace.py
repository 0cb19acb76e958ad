"""How long news that can wait is gathered before it is told.

A single change should be told soon, and a thousand should be told together. So the first message after some quiet waits
briefly, and while each is followed by more changes, the wait doubles up to a bound: the back-off that link-state
protocols use for the same reason (RFC 8405), with the doubling of OSPF's and IS-IS's timers. When many links are
measured for the first time, or a large mesh comes up, each router then tells its neighbours what became of hundreds
of changes instead of each of them.
"""

from __future__ import annotations

import random
from math import inf

from ictp2p.routing.profile import RoutingProfile


class Pace:
    """The waits of one router's triggered updates.

    Args:
        profile: `trigger_delay` after quiet, doubling up to `trigger_most` in a burst.
        rng: spreads the messages of many routers apart.
    """

    def __init__(self, profile: RoutingProfile, rng: random.Random) -> None:
        self._profile = profile
        self._rng = rng
        self._wait = profile.trigger_delay
        self._told_at = -inf

    def due(self, now: float) -> float:
        """When news that came up now is to be told: what the last burst had grown to counts only while that lasts."""
        wait = self._wait if self._bursts(now) else self._profile.trigger_delay
        return now + wait * self._rng.uniform(0.5, 1.0)

    def at_once(self, now: float) -> float:
        """When bad news that came up now is to be told: now, unless something was told this very moment."""
        return max(now, self._told_at + self._profile.trigger_delay / 4)

    def told(self, now: float) -> None:
        """Note that news was told: if that has just happened before, the next will wait for longer."""
        least = self._profile.trigger_delay
        self._wait = min(2 * self._wait, self._profile.trigger_most) if self._bursts(now) else least
        self._told_at = now

    def _bursts(self, now: float) -> bool:
        """Whether the last message was so short a while ago that this is more of the same."""
        return now < self._told_at + 2 * self._wait + self._profile.trigger_delay
