"""The route table: what each neighbour offers, and which offer is used.

Selection (RFC 8966 §3.6) looks for the least metric among the feasible offers, and never at sequence numbers.
Two refinements:

*Do not flap.* A slightly better offer is taken only after it has been better for a while (the purpose of
RFC 8966, appendix A.3, whose smoothed metrics would take minutes to forget an infinity of 32 bits). A first
offer, or one that is better by a quarter, is taken at once.

*Do not jump into the void.* If the neighbour in use makes an offer that is no longer feasible, and nobody else
makes a feasible one, the choice stands as it was made (RFC 8966 §3.5.3 allows to ignore the update) until a
fresh sequence number arrives. The neighbour still has a route, and our distance is still beyond the one that it
had when we chose it, so no loop can close. Such a choice is *stale*. It stands for a hold time, and until the next
timer after that: in the RFC an ignored update leaves the timer of its route running, and a loop that a mistake did
close would else last for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from ictp2p.routing.algebra import INFINITY, Distance, extend
from ictp2p.routing.messages import Key, checksum
from ictp2p.routing.profile import RoutingProfile
from ictp2p.routing.sources import SourceTable


class Choice(NamedTuple):
    """The offer in use for one destination and class."""

    neighbour: str
    offer: Distance
    """What the neighbour advertised when it was chosen, or later while feasible."""
    metric: int
    """The offer's metric plus the cost of our link."""
    stale: bool = False
    """The neighbour's newest offer is not feasible; a fresh sequence number is needed."""


class RouteTable:
    """Offers by route and neighbour, the cost of each link, and the choices made."""

    def __init__(self, sources: SourceTable, profile: RoutingProfile) -> None:
        self.chosen: dict[Key, Choice] = {}
        self._sources = sources
        self._profile = profile
        self._room = profile.max_destinations * profile.classes
        self._offers: dict[Key, dict[str, Distance]] = {}
        self._offered_by: dict[str, dict[Key, Distance]] = {}
        self.costs: dict[str, list[int]] = {}
        """What the link to each neighbour costs, by class; `INFINITY` where it does not belong."""
        self._challenged: dict[Key, float] = {}
        self._challenge_at = inf
        """Before this nothing is due in `_challenged`; the first may turn out to be due later."""
        self._stale: dict[Key, float] = {}
        """Until when stale choices stand, seconds."""

    def offered_by(self, neighbour: str) -> list[Key]:
        """The routes that a neighbour offers, in order."""
        return sorted(self._offered_by.get(neighbour, ()))

    def knows(self, key: Key) -> bool:
        """Whether any neighbour offers a route."""
        return key in self._offers

    def agrees(self, neighbour: str, held: int) -> bool:
        """Whether these are, by their checksum, the routes that a neighbour offers; not to be said of a full table."""
        return checksum(self._offered_by.get(neighbour, ())) == held or len(self._offers) >= self._room

    def learn(self, key: Key, neighbour: str, offer: Distance) -> bool:
        """Take a neighbour's offer or, if infinite, its retraction; say whether it is news."""
        mine = self._offered_by.setdefault(neighbour, {})
        if offer.metric >= INFINITY:
            return self._forget(key, neighbour)
        if mine.get(key) == offer or (key not in self._offers and len(self._offers) >= self._room):
            return False
        mine[key] = offer
        self._offers.setdefault(key, {})[neighbour] = offer
        return True

    def part(self, neighbour: str) -> None:
        """Take it that one, all of whose offers were taken back, is no neighbour any more."""
        del self.costs[neighbour]
        self._offered_by.pop(neighbour, None)

    def hear(self, neighbour: str, heard: Iterable[Key], offer: Distance) -> tuple[list[Key], list[Key]]:
        """Take one offer in many classes: `learn` and `matters` for each, and most of what a router does.

        Returns:
            The routes whose choice it could change; then those that could only become better by it.
        """
        mine = self._offered_by.setdefault(neighbour, {})
        every, chosen, costs = self._offers, self.chosen, self.costs.get(neighbour)
        urgent: list[Key] = []
        better: list[Key] = []
        if offer.metric >= INFINITY or costs is None:
            return [key for key in heard if self.learn(key, neighbour, offer) and self.matters(key, neighbour)], better
        for key in heard:
            if mine.get(key) == offer:
                continue
            offers = every.get(key)
            if offers is None:
                if len(every) >= self._room:
                    continue
                offers = every[key] = {}
            mine[key] = offers[neighbour] = offer
            choice, metric = chosen.get(key), offer.metric + costs[key[1]]
            if choice is None:
                if metric < INFINITY:
                    urgent.append(key)
            elif choice.neighbour == neighbour:
                same = not choice.stale and choice.offer.seqno == offer.seqno
                (better if same and metric < choice.metric else urgent).append(key)
            elif choice.stale:
                urgent.append(key)
            elif metric < choice.metric:
                better.append(key)
        return urgent, better

    def matters(self, key: Key, neighbour: str) -> bool:
        """Say, cheaply, whether a neighbour's new offer could change the choice."""
        choice = self.chosen.get(key)
        if choice is None or choice.stale or choice.neighbour == neighbour:
            return True
        offer, costs = self._offers.get(key, {}).get(neighbour), self.costs.get(neighbour)
        return offer is not None and costs is not None and offer.metric + costs[key[1]] < choice.metric

    def choose(self, key: Key, now: float) -> Choice | None:
        """Make the choice anew."""
        kept, best = self._kept(key, now), self._best(key)
        choice = self._prefer(key, kept, best, now) if kept is not None and best is not None else best or kept
        if choice is None:
            self.chosen.pop(key, None)
        else:
            self.chosen[key] = choice
        if choice is None or choice is not kept:
            self._challenged.pop(key, None)
        if choice is None or not choice.stale:
            self._stale.pop(key, None)
        return choice

    def lacks_freshness(self, key: Key) -> bool:
        """Say whether an offer would be better than what we use, were its sequence number fresh."""
        promised = self._sources.distance(key)
        if promised is None:
            return False
        choice, costs, traffic_class = self.chosen.get(key), self.costs, key[1]
        bound = INFINITY if choice is None or choice.stale else choice.metric
        seqno, metric = promised
        for neighbour, offer in self._offers.get(key, {}).items():
            fresh, far = offer
            old = fresh < seqno or (fresh == seqno and far >= metric)
            if old and neighbour in costs and far + costs[neighbour][traffic_class] < bound:
                return True
        return False

    def nearest(self, key: Key) -> list[str]:
        """The neighbours with a usable offer, nearest first."""
        costs, traffic_class = self.costs, key[1]
        ranked = sorted(
            (offer.metric + costs[neighbour][traffic_class], neighbour)
            for neighbour, offer in self._offers.get(key, {}).items()
            if neighbour in costs
        )
        return [neighbour for metric, neighbour in ranked if metric < INFINITY]

    def is_feasible(self, key: Key, neighbour: str) -> bool:
        """Say whether a neighbour's offer may be used."""
        offer = self._offers.get(key, {}).get(neighbour)
        return offer is not None and self._sources.feasible(key, offer)

    def challenged(self, now: float) -> list[Key]:
        """The routes whose challenger has been better for long enough to be taken."""
        if now < self._challenge_at:
            return []
        self._challenge_at = min((due for due in self._challenged.values() if due > now), default=inf)
        return sorted(key for key, due in self._challenged.items() if due <= now)

    def next_challenge(self) -> float | None:
        """When `challenged` next has something, or may have."""
        return self._challenge_at if self._challenged else None

    def outlived(self, now: float) -> list[Key]:
        """The routes whose choice has been stale for too long: no fresh sequence number has come, nor will one."""
        return sorted(key for key, until in self._stale.items() if until <= now)

    def _forget(self, key: Key, neighbour: str) -> bool:
        if self._offered_by[neighbour].pop(key, None) is None:
            return False
        offers = self._offers[key]
        del offers[neighbour]
        if not offers:
            del self._offers[key]
        return True

    def _metric(self, key: Key, neighbour: str) -> int:
        offer = self._offers.get(key, {}).get(neighbour)
        costs = self.costs.get(neighbour)
        return INFINITY if offer is None or costs is None else extend(offer.metric, costs[key[1]])

    def _best(self, key: Key) -> Choice | None:
        """The feasible offer of least metric; the alphabet breaks ties, so that every run agrees."""
        best, by = INFINITY, ""
        offers, links, traffic_class = self._offers.get(key, {}), self.costs, key[1]
        for neighbour, offer in offers.items():
            costs = links.get(neighbour)
            if costs is None:
                continue
            metric = offer.metric + costs[traffic_class]
            closer = metric < best or (metric == best < INFINITY and neighbour < by)
            if closer and self._sources.feasible(key, offer):
                best, by = metric, neighbour
        return Choice(by, offers[by], best) if by else None

    def _kept(self, key: Key, now: float) -> Choice | None:
        """The choice in force with today's numbers, if it can still stand."""
        choice = self.chosen.get(key)
        if choice is None or self._metric(key, choice.neighbour) >= INFINITY:
            return None
        newest = self._offers[key][choice.neighbour]
        stale = not self._sources.feasible(key, newest)
        if stale and now >= self._stale.setdefault(key, now + self._profile.hold):
            return None
        offer = choice.offer if stale else newest
        metric = extend(offer.metric, self.costs[choice.neighbour][key[1]])
        if metric == choice.metric and stale == choice.stale and offer == choice.offer:
            return choice
        return Choice(choice.neighbour, offer, metric, stale)

    def _prefer(self, key: Key, kept: Choice, best: Choice, now: float) -> Choice:
        if kept.stale:
            return best
        if best.metric >= kept.metric:
            self._challenged.pop(key, None)
            return kept
        if best.metric < kept.metric * (1 - self._profile.significance):
            return best
        due = self._challenged.setdefault(key, now + self._profile.settle)
        self._challenge_at = min(self._challenge_at, due)
        return best if now >= due else kept
