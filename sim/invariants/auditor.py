"""Hands what happens in a world to those who know the rules, and collects what they find."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ictp2p.gossip.election import LeaderChanged
from ictp2p.machine import Notice
from ictp2p.routing.babel import RouteChanged
from ictp2p.sync.agreement import acceptor
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.rounds.notices import RoundOpened, StateAdvanced
from ictp2p.sync.values import Open
from sim.invariants.agreement import Agreement
from sim.invariants.finding import Finding
from sim.invariants.gossip import Gossip
from sim.invariants.leadership import Leadership
from sim.invariants.rounds import Rounds
from sim.invariants.routing import Routing

if TYPE_CHECKING:
    from sim.host import Host
    from sim.view import View

_SHARE = 16  # hosts whose tables one sweep looks at: what a sweep costs does not grow with the world


class Auditor:
    """Checks one world as it runs.

    Args:
        world: what to watch.
        waive: rules whose breach is noted only.
    """

    def __init__(self, world: View, waive: Collection[str] = ()) -> None:
        self._world = world
        self._waive = frozenset(waive)
        self.findings: list[Finding] = []
        self.waived: list[Finding] = []
        self.checks = 0
        """Notices, messages and writes that were looked at."""
        self.agreement = Agreement(world, self.complain)
        self.rounds = Rounds(world, self.agreement, self.complain)
        self.leadership = Leadership(world, self.complain)
        self.routing = Routing(world, self.complain)
        self.gossip = Gossip(world, self.complain)
        self._next = 0

    def complain(self, rule: str, text: str) -> None:
        """Report a breach and, unless it is waived, stop the world."""
        if not self._world.audit:
            return
        finding = Finding(rule, self._world.now, text)
        if rule in self._waive:
            self.waived.append(finding)
            return
        self.findings.append(finding)
        self._world.loop.stop()

    def notice(self, host: Host, notice: Notice) -> None:
        """A peer's stack told something. What was decided is known also where nobody looks: worlds ask for it."""
        if not self._world.audit and not isinstance(notice, Decided):
            return
        self.checks += 1
        match notice:
            case Decided(slot=slot, value=value):
                self.agreement.decided(host, slot, value)
                if isinstance(value, Open):
                    self.leadership.bound(slot, value)
            case RouteChanged(destination=destination, traffic_class=k):
                self.routing.changed(host, (destination, k))
            case LeaderChanged(leader=leader, term=term):
                self.leadership.claimed(host, leader, term)
            case RoundOpened(open=opened):
                self.rounds.opened(host, opened)
            case StateAdvanced(ref=ref):
                self.rounds.told(host, ref.version)

    def delivering(self, host: Host) -> None:
        """A message is about to be handled at a host."""
        self.checks += 1
        self.gossip.note_own(host)
        self.routing.count(host)
        self.rounds.listening(host)

    def saved(self, host: Host, key: str, value: bytes) -> None:
        """A host's disk has a new value."""
        self.checks += 1
        if key == acceptor.KEY and host.id is not None:
            self.agreement.saved(host.id, value)

    def ending(self, host: Host) -> None:
        """A host's process is about to be killed."""
        self.gossip.note_last(host)

    def sweep(self) -> None:
        """Look at what no notice announces, at some of the hosts: the next ones each time."""
        hosts = self._world.running()
        for host in hosts:
            self.gossip.note_own(host)
        if len(hosts) > _SHARE:
            self._next %= len(hosts)
            hosts = (hosts[self._next :] + hosts[: self._next])[:_SHARE]
            self._next += _SHARE
        for host in hosts:
            self.gossip.look(host)
            self.routing.look(host)
