"""What a simulated world consists of, before anybody builds, harms or questions it.

The parts of `sim.world.World` are classes over this one, one idea each: `sim.building` (clusters and links),
`sim.harm` (what faults do) and `sim.view` (the questions of someone who sees everything). Whatever acts upon the
world does so as a callback of its loop (`SimLoop.perform`), at one instant of virtual time.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.chance import Chance
from sim.internet import Internet
from sim.ledger import Ledger
from sim.loop import SimLoop
from sim.topology import Topology
from sim.trace import Trace

if TYPE_CHECKING:
    from sim.group import Meeting
    from sim.host import Cluster, Host
    from sim.invariants import Auditor
    from sim.supervisor import Supervisor


class Ground:
    """Time, chance, network, trace and hosts of one world.

    Args:
        seed: of everything.
        profile: kind of network between clusters, for clusters that name none.
        elide: let large payloads travel as sizes only.
        audit: look at the invariants.
    """

    auditor: Auditor
    supervisor: Supervisor

    def __init__(self, seed: int, profile: str, *, elide: bool, audit: bool) -> None:
        self.seed = seed
        self.profile = profile
        self.audit = audit
        self.loop = SimLoop()
        self.chance = Chance(seed)
        self.topology = Topology()
        self.trace = Trace(lambda: self.loop.now)
        delivering = self._delivering if audit else self.trace.delivery
        self.internet = Internet(self.loop, self.chance, self.topology, delivering, elide=elide)
        self.ledger = Ledger(lambda rule, text: self.auditor.complain(rule, text), checked=not elide)
        self.hosts: dict[str, Host] = {}
        """Every host there ever was, by name, in the order in which they came."""
        self.clusters: dict[str, Cluster] = {}
        """Every cluster that was declared."""
        self.meetings: dict[tuple[object, ...], Meeting] = {}
        """Where the workers of a cluster meet, by cluster and roster."""
        self._context = contextvars.Context()

    @property
    def now(self) -> float:
        """True virtual time, seconds."""
        return self.loop.now

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        """Call `act` in so many seconds from now."""
        self.loop.at(self.now + seconds, act, context=self._context)

    def _delivering(self, source: str, target: str, size: int) -> None:
        """A process is about to handle a message, in a world that is audited."""
        self.trace.delivery(source, target, size)
        if self.audit:
            self.auditor.delivering(self.hosts[target])
