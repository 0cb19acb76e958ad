"""Babel: a loop-free way to every cluster, at every instant, over relays where two cannot dial each other.

The rules are RFC 8966's, run once per bandwidth class (`classes`) on the additive metric of `algebra`. Each
idea has its module: what neighbours offer and which offer is used is `table`; what makes it loop-free is
`sources`; what neighbours are told is `announcer`, and when, `pace`; asking for fresh sequence numbers is
`requests`; links and their timers are `neighbours`. This one joins them.

What differs from the RFC, and why:

- Neighbours speak over a connection that is reliable and in order, and whose end is an input (`link_down`). So
  there are no Hellos here (`gossip.links` has them) and no acknowledgments, a neighbour is told everything once
  and then what changes, and retractions are sent once. What is lost together with a connection is repaired by the
  dump that begins the next; what its writer dropped shows as a gap in the numbers of the updates, and is asked for;
  and a periodic update, else empty, has a checksum of what should be held by then.
- A dump replaces everything that the neighbour said before, and a route expires when its neighbour's updates, empty
  ones included, stay away: one timer per neighbour does for all its routes. As a neighbour may so hold for hours
  what it was told once, a feasibility distance is kept for as long as the route was not taken back.
- Offers by which a route could only become better are weighed when the neighbours are told next, not each as it comes:
  nobody can follow sooner, and of the many that a change far away brings only the best counts. Whatever could make a
  route worse, or is the first way to somewhere, is weighed at once.
- Wide ways are for transfers that somebody relays. A cluster that can be dialed has itself advertised in class 0 alone
  (`set_relayed`), which spares the mesh most of its routes: with ten more classes each link that is measured is news of
  as many instances.
- The router-id is the destination, and a sequence number has 64 bits, of which the high half counts
  incarnations: a restarted cluster is believed at once.

A neighbour's copy of our own route is never believed: a cluster knows best where it is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.machine import Effects, Message, Notice, Send, earliest
from ictp2p.routing.algebra import INFINITY, Distance, Link, seconds
from ictp2p.routing.announcer import Announcer, Told, Urgency
from ictp2p.routing.classes import class_bandwidth, fastest
from ictp2p.routing.messages import Key, RouteRequest, SeqnoRequest, Update, Wanted, keys
from ictp2p.routing.neighbours import Neighbour
from ictp2p.routing.pace import Pace
from ictp2p.routing.profile import RoutingProfile
from ictp2p.routing.requests import Requests
from ictp2p.routing.sources import SourceTable
from ictp2p.routing.table import RouteTable


@dataclass(frozen=True, slots=True)
class Route:
    """A way to a destination in one bandwidth class."""

    destination: str
    next_hop: str
    traffic_class: int
    delay: float
    """Seconds one way, with the time that relays take to store and forward a message."""
    bandwidth: float
    """Bytes per second that every link on the way has at least (in class 0: is assumed to have)."""


@dataclass(frozen=True, slots=True)
class RouteChanged(Notice):
    """The next hop to a destination changed, or was lost (`None`, with a metric of `INFINITY`)."""

    destination: str
    traffic_class: int
    next_hop: str | None
    metric: int


class Babel:
    """The routing machine of one cluster's leader.

    Args:
        me: this cluster.
        seqno: where our sequence number starts. It must exceed every number that this cluster used before,
            whoever led it: the incarnation shifted left by 32 bits, where a new leader is a new incarnation.
        profile: timers.
        rng: spreads the timers of many routers apart.
    """

    def __init__(self, me: str, seqno: int, profile: RoutingProfile, rng: random.Random) -> None:
        self.me = me
        self.seqno = seqno
        self.sources = SourceTable(profile.source_lifetime)
        self.table = RouteTable(self.sources, profile)
        self._profile = profile
        self._rng = rng
        self._requests = Requests(self.table, self.sources, profile)
        self._announcer = Announcer(self._current, self.sources, profile.significance)
        self._own = profile.classes
        """In how many classes this cluster has itself advertised."""
        self._neighbours: dict[str, Neighbour] = {}
        self._strangers: set[str] = set()
        self._waiting: dict[Key, None] = {}
        """Routes that can only become better: weighed anew when the neighbours are told next."""
        self._flush_at: float | None = None
        self._pace = Pace(profile, rng)
        self._refresh_at: float | None = None
        self._watch_at = inf
        """Until when no neighbour's timer is due; one may turn out to be later."""
        self._answers: dict[str, dict[Key, None]] = {}
        self._effects: Effects = []

    # Inputs

    def link_up(self, neighbour: str, link: Link, now: float) -> Effects:
        """A connection to a neighbouring cluster is usable. A repeated call is a new connection: the old is void."""
        if neighbour == self.me:
            raise LocalProtocolError(f"cluster {self.me!r} cannot be its own neighbour")
        self._forget(neighbour, now)
        state = self._neighbours[neighbour] = Neighbour(link, self._profile, now)
        self.table.costs[neighbour] = state.costs
        self._effects += self._announcer.greet(neighbour, self._routes(), now)
        if neighbour in self._strangers:  # it greeted before our side of the link was up
            self._strangers.discard(neighbour)
            self._effects.append(Send(neighbour, RouteRequest()))
        if self._refresh_at is None:
            self._refresh_at = self._next_refresh(now)
        self._watch_at = min(self._watch_at, state.next_timeout() or inf)
        return self._finish(now)

    def link_changed(self, neighbour: str, link: Link, now: float) -> Effects:
        """A link was measured anew. Its classes change with hysteresis; its cost counts when routes are weighed."""
        state = self._neighbours.get(neighbour)
        if state is None:
            return []
        state.measured(link)
        before, costs = self.table.costs[neighbour], state.costs
        if costs != before:
            self.table.costs[neighbour] = costs
            for key in self.table.offered_by(neighbour):
                if costs[key[1]] != before[key[1]] and self.table.matters(key, neighbour):
                    if costs[key[1]] < INFINITY:
                        self._put_off(key, now)
                    else:
                        self._settle(key, now)
        return self._finish(now)

    def link_down(self, neighbour: str, now: float) -> Effects:
        """The connection ended: reroute what went that way, and retract what cannot be rerouted."""
        self._strangers.discard(neighbour)
        self._forget(neighbour, now)
        return self._finish(now)

    def set_relayed(self, relayed: bool, now: float) -> Effects:
        """Say whether transfers to this cluster may have to come through relays, as they may until this is called.

        If not, it is advertised in class 0 alone: whoever can dial it has no use for the widest way around.
        """
        own = self._profile.classes if relayed else 1
        if own != self._own:
            self._own = own
            for k in range(1, self._profile.classes):
                self._announcer.note((self.me, k))
            self._flush_at = now
        return self._finish(now)

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        """Take a neighbour's message.

        Raises:
            RemoteProtocolError: it is none of this room's, or cannot be.
        """
        if sender not in self._neighbours:
            self._strangers.add(sender)
            return []
        match message:
            case Update():
                self._take_update(sender, message, now)
            case SeqnoRequest():
                self._take_request(sender, message, now)
            case RouteRequest():
                self._effects += self._announcer.greet(sender, self._routes(), now)
            case _:
                raise RemoteProtocolError(f"{sender} sent {type(message).__name__}, which is no routing message")
        return self._finish(now)

    def handle_timeout(self, now: float) -> Effects:
        """Do whatever has become due."""
        if self._watch_at <= now:
            for neighbour in self._others():
                self._watch(neighbour, now)
            self._watch_at = min((n.next_timeout() or inf for n in self._neighbours.values()), default=inf)
        for key in self.table.challenged(now):
            self._settle(key, now)
        if self._refresh_at is not None and self._refresh_at <= now:
            self._refresh(now)
        elif self._flush_at is not None and self._flush_at <= now:
            self._flush(now)
        return self._finish(now)

    def next_timeout(self) -> float | None:
        """When something will become due."""
        watch = None if self._watch_at == inf else self._watch_at
        others = (self.table.next_challenge(), self._requests.next_timeout())
        return earliest([self._flush_at, self._refresh_at, watch, *others])

    # Answers

    def next_hop(self, destination: str, traffic_class: int = 0) -> str | None:
        """The neighbour to forward to, or None without a route.

        A relay whose class has no route may continue in a lower one, never in a higher one: within a class
        there are no loops, and a class that only falls cannot make one either.
        """
        choice = self.table.chosen.get((destination, traffic_class))
        return None if choice is None else choice.neighbour

    def best(self, destination: str, size: int) -> Route | None:
        """The route on which `size` bytes arrive first, or None without a route."""
        known = {r.traffic_class: r for k in range(self._profile.classes) if (r := self._route((destination, k)))}
        chosen = fastest(((k, route.delay) for k, route in known.items()), size)
        return None if chosen is None else known[chosen]

    def routes(self) -> tuple[Route, ...]:
        """Every route in use, by destination and class."""
        return tuple(route for key in sorted(self.table.chosen) if (route := self._route(key)))

    def _route(self, key: Key) -> Route | None:
        choice = self.table.chosen.get(key)
        if choice is None:
            return None
        return Route(key[0], choice.neighbour, key[1], seconds(choice.metric), class_bandwidth(key[1]))

    # Messages

    def _take_update(self, sender: str, update: Update, now: float) -> None:
        """Enter what the neighbour told; a full update also takes back what it does not mention."""
        state = self._neighbours[sender]
        if update.full and state.is_past(update.number):
            return
        if not state.told(update.number, update.full, now):
            self._watch_at = min(self._watch_at, state.next_timeout() or inf)
        before = self.table.offered_by(sender) if update.full else []
        told: set[Key] = set()
        for advert in update.adverts:
            if advert.destination == self.me:
                continue
            offer = Distance(advert.seqno, advert.metric)
            heard = keys(advert, self._profile.classes)
            if update.full:
                told.update(heard)
            urgent, better = self.table.hear(sender, heard, offer)
            for key in urgent:
                self._settle(key, now)
            for key in better:
                self._put_off(key, now)
        for key in before:
            if key not in told and self.table.learn(key, sender, Distance(0, INFINITY)):
                self._reconsider(key, sender, now)
        if update.held is not None and not self.table.agrees(sender, update.held):
            state.doubt(now)
            self._watch_at = now

    def _take_request(self, sender: str, request: SeqnoRequest, now: float) -> None:
        """Answer, or pass on to one neighbour (RFC 8966 §3.8.1.2). Our own number grows by one per request."""
        if any(wanted.destination == self.me and wanted.seqno > self.seqno for wanted in request.wanted):
            self.seqno += 1
        for wanted in request.wanted:
            for key in keys(wanted, self._profile.classes):
                self._serve(sender, key, wanted, now)

    def _serve(self, sender: str, key: Key, wanted: Wanted, now: float) -> None:
        route = self._current(key)
        if route is not None and route.distance.seqno >= wanted.seqno and route.next_hop != sender:
            self._answers.setdefault(sender, {})[key] = None
        elif wanted.hops > 1 and key[0] != self.me:
            self._requests.carry(sender, key, wanted.seqno, wanted.hops, now)

    # Changes

    def _forget(self, neighbour: str, now: float) -> None:
        if self._neighbours.pop(neighbour, None) is not None:
            self._requests.gone(neighbour)
            self._answers.pop(neighbour, None)
            self._unlearn(neighbour, now)
            self.table.part(neighbour)
            self._announcer.part(neighbour)
        if not self._neighbours:
            self._refresh_at = None
            self._watch_at = inf

    def _unlearn(self, neighbour: str, now: float) -> None:
        for key in self.table.offered_by(neighbour):
            self.table.learn(key, neighbour, Distance(0, INFINITY))
            self._reconsider(key, neighbour, now)

    def _reconsider(self, key: Key, neighbour: str, now: float) -> None:
        """A neighbour's offer, or the cost of its link, changed."""
        if self.table.matters(key, neighbour):
            self._settle(key, now)

    def _put_off(self, key: Key, now: float) -> None:
        """A route can only become better: it does so when the neighbours are told, and once for many offers."""
        self._waiting[key] = None
        self._flush_soon(now)

    def _weigh(self, now: float) -> None:
        """Choose anew what was put off."""
        waiting, self._waiting = self._waiting, {}
        for key in waiting:
            self._settle(key, now)

    def _settle(self, key: Key, now: float) -> None:
        """Choose a route anew, and do what follows from the choice."""
        before = self.next_hop(*key)
        choice = self.table.choose(key, now)
        after = None if choice is None else choice.neighbour
        if after != before:
            self._effects.append(RouteChanged(*key, after, INFINITY if choice is None else choice.metric))
        match self._announcer.note(key):
            case Urgency.NOW:
                self._flush_at = self._pace.at_once(now)
            case Urgency.SOON:
                self._flush_soon(now)
        self._requests.review(key, now)
        if choice is not None:
            for waiter in self._requests.answered(key, choice.offer.seqno):
                self._answers.setdefault(waiter, {})[key] = None
            if after != before:
                self._requests.follow(key, now)

    # Output

    def _finish(self, now: float) -> Effects:
        """Close an input: bad news first, then answers, then requests, so that nobody is asked about a way via us."""
        if self._flush_at is not None and self._flush_at <= now:
            self._flush(now)
        answers, self._answers = self._answers, {}
        for neighbour in sorted(answers):
            self._effects += self._announcer.answer(neighbour, answers[neighbour], now)
        self._requests.ask(now)
        self._effects += self._requests.collect()
        effects, self._effects = self._effects, []
        return effects

    def _flush_soon(self, now: float) -> None:
        if self._flush_at is None:
            self._flush_at = self._pace.due(now)

    def _flush(self, now: float) -> None:
        self._weigh(now)
        self._flush_at = None
        news = self._announcer.changes(self._others(), now)
        if news:
            self._pace.told(now)
        self._effects += news

    def _refresh(self, now: float) -> None:
        """Tell everybody that nothing was missed, and do the housekeeping that needs no timer of its own."""
        self._weigh(now)
        for key in self.table.outlived(now):
            self._settle(key, now)
        self._flush_at, self._refresh_at = None, self._next_refresh(now)
        self.sources.expire(now, self._announcer.stands)
        self._requests.expire(now)
        self._effects += self._announcer.refresh(self._others(), now)

    def _watch(self, neighbour: str, now: float) -> None:
        """Forget what a silent neighbour taught, and ask for a dump where one is missing."""
        if self._neighbours[neighbour].expired(now):
            self._unlearn(neighbour, now)
        if self._neighbours[neighbour].must_ask(now):
            self._effects.append(Send(neighbour, RouteRequest()))

    def _current(self, key: Key) -> Told | None:
        """A route as we advertise it, our own included."""
        if key[0] == self.me:
            return Told(Distance(self.seqno, 0), None) if key[1] < self._own else None
        choice = self.table.chosen.get(key)
        return None if choice is None else Told(Distance(choice.offer.seqno, choice.metric), choice.neighbour)

    def _routes(self) -> list[Key]:
        return [*((self.me, k) for k in range(self._own)), *self.table.chosen]

    def _others(self) -> list[str]:
        return sorted(self._neighbours)

    def _next_refresh(self, now: float) -> float:
        return now + self._profile.update_interval * self._rng.uniform(0.75, 1.0)
