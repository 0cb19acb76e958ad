"""Many routers and what is between them, with virtual time; what holds at every instant is checked after each event.

`Mesh` is a scheduler: in-order wires with random delays (and loss, if asked), ends of wires that notice a failure at
different times, and routers that crash and come back with nothing but a higher incarnation.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ictp2p.machine import Effects, Message, Send
from ictp2p.routing.algebra import INFINITY, Distance, Link
from ictp2p.routing.babel import Babel, RouteChanged
from ictp2p.routing.messages import Key, SeqnoRequest
from ictp2p.routing.profile import RoutingProfile

PROFILE = RoutingProfile(
    update_interval=16.0,
    trigger_delay=0.05,
    trigger_most=0.2,
    retries=(0.5, 1.0, 2.0),
    settle=1.0,
    classes=3,
    source_lifetime=180.0,
)
DETECT = 0.3
DELAY = 0.05
EQUAL = Link(0.02)


@dataclass
class Wire:
    epoch: int
    links: dict[str, Link]
    up: bool = True


class Mesh:
    def __init__(self, names: list[str], seed: int, profile: RoutingProfile = PROFILE, loss: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.profile = profile
        self.loss = loss
        self.in_order = True
        self.now = 0.0
        self.nodes: dict[str, Babel] = {}
        self.wires: dict[frozenset[str], Wire] = {}
        self.sessions: dict[tuple[str, str], int] = {}
        self.incarnations = dict.fromkeys(names, 0)
        self.born = dict.fromkeys(names, 0)
        self.relayed = dict.fromkeys(names, True)
        self.sent: list[tuple[float, str, str, Message]] = []
        self.notices: list[tuple[float, str, RouteChanged]] = []
        self.checking = True
        self._epochs = itertools.count(1)
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._last_delivery: dict[tuple[str, str], float] = {}
        for name in names:
            self._start(name)

    # Faults and repairs

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def connect(self, a: str, b: str, link: Link, back: Link | None = None) -> None:
        pair = frozenset((a, b))
        if pair in self.wires and self.wires[pair].up:
            return
        wire = self.wires[pair] = Wire(next(self._epochs), {a: link, b: back or link})
        for end, other in ((a, b), (b, a)):
            self.at(self.now + self.rng.uniform(0, DETECT), partial(self._up, end, other, wire))

    def fail(self, a: str, b: str) -> None:
        wire = self.wires.get(frozenset((a, b)))
        if wire is None or not wire.up:
            return
        wire.up = False
        for end, other in ((a, b), (b, a)):
            self.at(self.now + self.rng.uniform(0, DETECT), partial(self._down, end, other, wire))

    def isolate(self, name: str) -> None:
        for other in sorted(self.nodes):
            self.fail(name, other)

    def change(self, a: str, b: str, link: Link) -> None:
        wire = self.wires.get(frozenset((a, b)))
        if wire is not None and wire.up:
            wire.links[a] = link
            if self.sessions.get((a, b)) == wire.epoch:
                self._step(a, lambda node: node.link_changed(b, link, self.now))

    def restart(self, name: str) -> None:
        """Crash and come back at once: the others notice later, and dial again."""
        wires = [(pair, wire) for pair, wire in sorted(self.wires.items(), key=lambda w: sorted(w[0])) if name in pair]
        for pair, _ in wires:
            (other,) = pair - {name}
            self.sessions.pop((name, other), None)
        self._start(name)
        for pair, wire in wires:
            (other,) = pair - {name}
            if wire.up:
                self.fail(name, other)
                self.connect(name, other, wire.links[name], wire.links[other])

    def toggle(self, name: str) -> None:
        """Whether it can be dialed turns out to be otherwise."""
        self.relayed[name] = not self.relayed[name]
        self._step(name, lambda node: node.set_relayed(self.relayed[name], self.now))

    # Time

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    # What is true of the mesh

    def costs(self, traffic_class: int) -> dict[str, dict[str, int]]:
        """What it costs to come, over the links that really are there, to a router from each neighbour."""
        into: dict[str, dict[str, int]] = {name: {} for name in self.nodes}
        for pair, wire in self.wires.items():
            for a, b in itertools.permutations(sorted(pair)) if wire.up else ():
                into[b][a] = self.nodes[a].table.costs[b][traffic_class]
        return into

    def distances(self, destination: str, traffic_class: int) -> dict[str, int]:
        """Dijkstra, from the destination backwards."""
        into = self.costs(traffic_class)
        if traffic_class and not self.relayed[destination]:
            return {destination: 0}
        heap, done = [(0, destination)], dict[str, int]()
        while heap:
            distance, name = heapq.heappop(heap)
            if name not in done:
                done[name] = distance
                for neighbour, cost in into[name].items():
                    if cost < INFINITY and neighbour not in done:
                        heapq.heappush(heap, (distance + cost, neighbour))
        return done

    def routes(self) -> Iterator[Key]:
        return itertools.product(self.nodes, range(self.profile.classes))

    def hop(self, name: str, key: Key) -> str | None:
        """The next hop, unless it died and was reborn since: bytes to a dead connection arrive nowhere."""
        hop = self.nodes[name].next_hop(*key)
        return hop if hop is not None and self.sessions[name, hop] > self.born[hop] else None

    # Inside

    def _start(self, name: str) -> None:
        self.incarnations[name] += 1
        self.born[name] = next(self._epochs)
        node = Babel(name, self.incarnations[name] << 32, self.profile, random.Random(self.rng.random()))
        node.set_relayed(self.relayed[name], self.now)
        self.nodes[name] = node

    def _up(self, end: str, other: str, wire: Wire) -> None:
        if wire.up and wire.epoch > self.born[end]:
            self.sessions[end, other] = wire.epoch
            self._last_delivery.pop((end, other), None)
            self._step(end, lambda node: node.link_up(other, wire.links[end], self.now))

    def _down(self, end: str, other: str, wire: Wire) -> None:
        if self.sessions.get((end, other)) == wire.epoch:
            del self.sessions[end, other]
            self._step(end, lambda node: node.link_down(other, self.now))

    def _step(self, name: str, act: Callable[[Babel], Effects], asked: bool = False) -> None:
        node = self.nodes[name]
        seqno = node.seqno
        before = {key: node.sources.distance(key) for key in self.routes()} if self.checking else {}
        for effect in act(node):
            match effect:
                case Send(to=to, message=message):
                    self._post(name, to, message)
                case RouteChanged():
                    self.notices.append((self.now, name, effect))
        if self.checking:
            assert seqno <= node.seqno <= seqno + asked, "R5: a sequence number moved too far, or unasked"
            self._check(name, before)
        self._arm(name, node)

    def _arm(self, name: str, node: Babel) -> None:
        due = node.next_timeout()
        if due is not None:
            at = max(due, self.now)
            self.at(at, lambda: self._timeout(name, node, due))

    def _timeout(self, name: str, node: Babel, due: float) -> None:
        if self.nodes[name] is node and node.next_timeout() == due:
            self._step(name, lambda node: node.handle_timeout(self.now))

    def _post(self, sender: str, to: str, message: Message) -> None:
        self.sent.append((self.now, sender, to, message))
        epoch = self.sessions[sender, to]
        if self.rng.random() < self.loss:
            return
        at = self.now + self.rng.uniform(0.1, 1.0) * DELAY
        if self.in_order:
            at = max(at, self._last_delivery.get((sender, to), 0.0))
        elif self.rng.random() < 0.2:
            self.at(at + DELAY, lambda: self._deliver(sender, to, epoch, message))
        self._last_delivery[sender, to] = at
        self.at(at, lambda: self._deliver(sender, to, epoch, message))

    def _deliver(self, sender: str, to: str, epoch: int, message: Message) -> None:
        wire = self.wires[frozenset((sender, to))]
        if wire.up and wire.epoch == epoch and self.sessions.get((to, sender), epoch) == epoch:
            asked = isinstance(message, SeqnoRequest)
            self._step(to, lambda node: node.receive(sender, message, self.now), asked)

    def _check(self, name: str, before: dict[Key, Distance | None]) -> None:
        node = self.nodes[name]
        for key in self.routes():
            old, mine, choice = before[key], node.sources.distance(key), node.table.chosen.get(key)
            assert old is None or mine is None or mine == old or nearer(mine, old), "R4: feasibility got worse"
            if choice is not None:
                assert choice.metric < INFINITY, "R3: an infinite route is in use"
                assert node.sources.feasible(key, choice.offer), "R3: an infeasible route is in use"
            self._check_path(name, key)

    def _check_path(self, name: str, key: Key) -> None:
        """A new loop must pass through the router that just changed, so it is enough to walk from there."""
        seen, at = {name}, name
        while (hop := self.hop(at, key)) is not None and at != key[0]:
            assert hop not in seen, f"R1: a loop towards {key} at {hop}"
            mine, its = self.nodes[at].sources.distance(key), self.nodes[hop].sources.distance(key)
            assert its is not None, f"R2: {hop} is used for {key}, which it never advertised"
            assert mine is None or nearer(its, mine), f"R2: {at} uses {hop} for {key}, which is no nearer"
            seen.add(hop)
            at = hop


def nearer(a: Distance, b: Distance) -> bool:
    """RFC 8966 §2.4 once more, so that the judge does not share the defendant's code."""
    return (-a.seqno, a.metric) < (-b.seqno, b.metric)
