"""Routing: no loop at any instant, and the reasons why there is none.

An edge is a choice whose neighbour is at the other end of a connection. A router that began anew has forgotten what it
promised, which RFC 8966 (section 3.5.1) assumes that it never does. Whoever chose it in its former life holds a
connection that leads to nobody, until it finds out: what it sends goes nowhere, and not round, so that is no edge. One
that leads to the process that runs is followed even before the far end takes part in it, but the promises there are
compared only once it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ictp2p.core.stack import Core
from ictp2p.routing.algebra import INFINITY, Distance
from ictp2p.routing.babel import Babel
from ictp2p.routing.messages import Key
from ictp2p.routing.table import Choice
from ictp2p.types import ClusterId
from sim.invariants.finding import Complain

if TYPE_CHECKING:
    from sim.host import Host
    from sim.view import View


class Routing:
    """R1 to R5 of one world.

    Args:
        world: whose leaders route.
        complain: told breaches.
    """

    def __init__(self, world: View, complain: Complain) -> None:
        self._world = world
        self._complain = complain
        self._promised: dict[str, tuple[Babel, float, dict[Key, Distance]]] = {}
        """Of each leader at the last look: its router, the time by its own clock, and its feasibility distances."""
        self._counted: dict[str, tuple[Babel, int, int]] = {}

    def changed(self, host: Host, key: Key) -> None:
        """A choice changed: walk from there to the destination. A new loop must pass through it."""
        path: list[str] = []
        at: Host | None = host
        while at is not None and at.core is not None and at.core.leading:
            if at.name in path:
                self._complain("R1", f"loop to {key}: {' > '.join([*path, at.name])}")
                return
            path.append(at.name)
            choice = at.core.m.routes.table.chosen.get(key)
            if choice is None or at.cluster == key[0]:
                return
            self._feasible(at, at.core.m.routes, key, choice)
            at = self._edge(at, at.core, key, choice)

    def count(self, host: Host) -> None:
        """A message is about to be handled: since the last one, the sequence number may have grown by one."""
        core = host.core
        if core is None or not core.leading:
            return
        router = core.m.routes
        before = self._counted.get(host.name)
        if before is not None and before[:2] == (router, host.term) and not 0 <= router.seqno - before[2] <= 1:
            self._complain("R5", f"{host.name}: sequence number {router.seqno:#x} after {before[2]:#x}")
        self._counted[host.name] = (router, host.term, router.seqno)

    def look(self, host: Host) -> None:
        """Look through a leader's whole table."""
        core = host.core
        if core is None or not core.leading:
            return
        router = core.m.routes
        self._kept(host, router)
        for key in sorted(router.table.chosen):
            choice = router.table.chosen[key]
            self._feasible(host, router, key, choice)
            self._edge(host, core, key, choice)
        if router.seqno >> 32 != host.term:
            self._complain("R5", f"{host.name} advertises seqno {router.seqno:#x} in term {host.term}")

    def _feasible(self, host: Host, router: Babel, key: Key, choice: Choice) -> None:
        """What is selected is finite, and was strictly nearer than anything that we ever advertised."""
        if not 0 < choice.metric < INFINITY:
            self._complain("R3", f"{host.name} selected {choice} for {key}")
        mine = router.sources.distance(key)
        if mine is not None and not choice.offer.better_than(mine):
            self._complain("R3", f"{host.name} selected {choice} for {key}, not feasible: its distance is {mine}")

    def _edge(self, at: Host, core: Core, key: Key, choice: Choice) -> Host | None:
        """The next hop, if it is a router; what it promised must be no farther than what we chose it for."""
        beside = core.neighbour(ClusterId(choice.neighbour))
        onward = None if beside is None else self._world.host_of(beside)
        if onward is None or onward.core is None or not onward.core.leading or not self._world.joined(at, onward):
            return None
        further = onward.core
        theirs = further.m.routes.sources.distance(key)
        if theirs is None or onward.cluster == key[0] or at.id != further.neighbour(ClusterId(at.cluster)):
            return onward
        mine = core.m.routes.sources.distance(key)
        if choice.offer.better_than(theirs) or (mine is not None and not theirs.better_than(mine)):
            text = f"{at.name} ({mine}) goes to {key} by {onward.name} ({theirs}), for its offer {choice.offer}"
            self._complain("R2", text)
        return onward

    def _kept(self, host: Host, router: Babel) -> None:
        """Promises only get better, until they are forgotten: between two looks, too, if the leader's clock jumps."""
        assert host.process is not None
        clock = host.process.local(self._world.now)
        known = self._promised.get(host.name)
        recent = known is not None and known[0] is router and clock - known[1] < router.sources.lifetime
        before = known[2] if known is not None and recent else {}
        now: dict[Key, Distance] = {}
        for key in sorted({**before, **router.table.chosen}):
            mine, old = router.sources.distance(key), before.get(key)
            if mine is None:
                continue
            now[key] = mine
            if old is not None and old.better_than(mine):
                self._complain("R4", f"{host.name}: the feasibility distance of {key} rose from {old} to {mine}")
        self._promised[host.name] = (router, clock, now)
