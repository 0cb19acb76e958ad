"""The neighbour table: what each link costs in each class, how long its far end may stay silent, and what we missed.

Updates to one neighbour are numbered, for as long as its name is known. The connection loses none, but its writer drops
frames for a neighbour that does not read; the number of whatever comes next then shows a gap, and everything is asked
for again. A dump that is older than what came since is void: it would take back what the neighbour has told after it.
"""

from __future__ import annotations

from ictp2p.machine import earliest
from ictp2p.routing.algebra import INFINITY, Link, link_cost, significant
from ictp2p.routing.classes import LinkClasses
from ictp2p.routing.profile import RoutingProfile

_NOISE = 0.25
"""Relative change of a cost that is none: each would be news of every destination to every neighbour, in every class.
Shares of a line that several transfers use vary more than this from round to round, and no better way follows."""


class Neighbour:
    """One neighbour: its link, and the timers of its updates."""

    def __init__(self, link: Link, profile: RoutingProfile, now: float) -> None:
        self._profile = profile
        self._classes = LinkClasses(profile.classes)
        self._classes.sample(link.bandwidth)
        self._cost = link_cost(link)
        self._expires: float | None = None
        self._ask_at: float | None = now + profile.retries[0]
        self._asked = 0
        self._number: int | None = None
        """Of its last update, if there was a full one and none was missed since."""
        self._newest = -1

    @property
    def costs(self) -> list[int]:
        """What the link costs in each class; `INFINITY` in those that it does not belong to."""
        return [self._cost if k <= self._classes.top else INFINITY for k in range(self._profile.classes)]

    def measured(self, link: Link) -> None:
        """Take a new measurement: the classes change with hysteresis, the cost at once, if by more than noise."""
        self._classes.sample(link.bandwidth)
        cost = link_cost(link)
        if significant(self._cost, cost, _NOISE):
            self._cost = cost

    def is_past(self, number: int) -> bool:
        """Say whether it has told something since its update of this number."""
        return number <= self._newest

    def told(self, number: int, full: bool, now: float) -> bool:
        """Take the number of its newest update; say whether we know all that it has told.

        If so, its routes are good for a hold time. If not, and that is news, it is to be asked at once.
        """
        self._newest = max(self._newest, number)
        if full:
            self._number = number
        elif self._number is not None:
            if number == self._number + 1:
                self._number = number
            else:
                self.doubt(now)
        if self._number is None:
            return False
        self._expires, self._ask_at, self._asked = now + self._profile.hold, None, 0
        return True

    def doubt(self, now: float) -> None:
        """What we hold is not what it has told: it is to be asked for everything."""
        self._number, self._ask_at = None, now

    def expired(self, now: float) -> bool:
        """Say, once, whether it was silent for too long."""
        if self._expires is None or now < self._expires:
            return False
        self._expires, self._ask_at, self._number = None, now, None
        return True

    def must_ask(self, now: float) -> bool:
        """Say whether to ask it for a dump now, and arm the repeat."""
        if self._ask_at is None or now < self._ask_at:
            return False
        self._asked += 1
        self._ask_at = now + self._profile.repeat_after(self._asked)
        return True

    def next_timeout(self) -> float | None:
        """When `expired` or `must_ask` is next worth a call."""
        return earliest([self._expires, self._ask_at])
