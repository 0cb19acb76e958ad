"""The neighbour table: what each link costs in each class, and how long its far end may stay silent."""

from __future__ import annotations

from ictp2p.machine import earliest
from ictp2p.routing.algebra import INFINITY, Link, link_cost
from ictp2p.routing.classes import Membership
from ictp2p.routing.profile import RoutingProfile


class Neighbour:
    """One neighbour: its link, and the timers of its dumps."""

    def __init__(self, link: Link, profile: RoutingProfile, now: float) -> None:
        self._profile = profile
        self._membership = Membership(profile.classes)
        self._membership.sample(link.bandwidth)
        self._cost = link_cost(link)
        self._expires: float | None = None
        self._ask_at: float | None = now + profile.retries[0]
        self._asked = 0

    @property
    def costs(self) -> list[int]:
        """What the link costs in each class; `INFINITY` in those that it does not belong to."""
        return [self._cost if k <= self._membership.top else INFINITY for k in range(self._profile.classes)]

    def measured(self, link: Link) -> None:
        """Take a new measurement: the classes change with hysteresis, the cost at once."""
        self._membership.sample(link.bandwidth)
        self._cost = link_cost(link)

    def dumped(self, now: float) -> None:
        """It told us everything: its routes are good for a hold time."""
        self._expires, self._ask_at, self._asked = now + self._profile.hold, None, 0

    def expired(self, now: float) -> bool:
        """Say, once, whether it was silent for too long."""
        if self._expires is None or now < self._expires:
            return False
        self._expires, self._ask_at = None, now
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
