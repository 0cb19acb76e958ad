"""What all simulated hosts share: who runs where, who listens, which connections there are, and how long a way takes.

Hosts have addresses, a process while they have power, and ports on which it listens. What lies between two of them,
and whether anything passes, the topology says; bandwidth is `sim.fluid`'s. Whatever opens or closes paths calls
`changed`, and every connection then looks again.
"""

from __future__ import annotations

import contextvars
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ictp2p.types import Address
from sim.chance import Chance
from sim.fluid import Fluid
from sim.loop import Process, SimLoop
from sim.topology import Link, Topology

if TYPE_CHECKING:
    from sim.connection import Endpoint
    from sim.network import SimListener

RTO = 0.2
"""Seconds after which a lost segment is sent again, at least."""

Delivery = Callable[[str, str, int], None]


class Internet:
    """All hosts, listeners and connections of a world.

    Args:
        loop: keeps time.
        chance: draws.
        topology: who is where, and what lies between.
        delivered: told (from, to, bytes) of every message that arrives at a process.
        elide: carry only the size of large messages of zeros, not their bytes.
    """

    def __init__(
        self,
        loop: SimLoop,
        chance: Chance,
        topology: Topology,
        delivered: Delivery | None = None,
        *,
        elide: bool = False,
    ) -> None:
        self.loop = loop
        self.chance = chance
        self.topology = topology
        self.fluid = Fluid(loop)
        self.delivered = delivered
        self.elide = elide
        self.bytes_sent: defaultdict[str, int] = defaultdict(int)
        """Bytes written by each host."""
        self.hosts: dict[str, str] = {}
        """Host by IP address."""
        self.addresses: dict[str, str] = {}
        """IP address by host."""
        self.processes: dict[str, Process] = {}
        """What runs on each host that has power."""
        self.listeners: dict[Address, SimListener] = {}
        self.endpoints: dict[Endpoint, None] = {}
        self.context = contextvars.Context()
        self._ports = itertools.count(40000)

    def host(self, name: str, site: str, ip: str) -> None:
        """Add a host."""
        self.topology.place(name, site)
        self.hosts[ip] = name
        self.addresses[name] = ip

    def boot(self, name: str, process: Process) -> None:
        """A host has power and runs `process`; whoever talks to its former one is reset."""
        self.processes[name] = process
        self.changed()

    def stopped(self, process: Process, *, power: bool) -> None:
        """A process was killed. Its kernel closes its connections, unless the host lost its power."""
        for address in [a for a, listener in self.listeners.items() if listener.process is process]:
            del self.listeners[address]
        if power:
            self.processes.pop(process.name, None)
        for end in [e for e in self.endpoints if e.process is process]:
            end.process_ended(power=power)
        self.changed()

    def changed(self) -> None:
        """Paths may have opened or closed: every connection looks again."""
        for end in list(self.endpoints):
            end.path_changed()
        self.fluid.changed()

    def reset_between(self, names: Callable[[str, str], bool]) -> None:
        """Reset every connection from and to hosts for which `names` says so."""
        for end in [e for e in self.endpoints if names(e.local, e.remote)]:
            end.reset_by_peer()

    def forget_between(self, names: Callable[[str, str], bool], share: float, *, told: bool) -> None:
        """Forget this share of the connections between hosts for which `names` says so; their ends may be `told`."""
        seen: set[Endpoint] = set()
        for end in [e for e in self.endpoints if names(e.local, e.remote)]:
            if end.peer not in seen and self.chance.happens(share, "forget", end.local, end.remote):
                for each in (end, end.peer):
                    if told:
                        each.reset_by_peer()
                    else:
                        each.forgotten = True
            seen.add(end)
        if not told:
            self.changed()

    def blocked(self, source: str, target: str) -> bool:
        """Whether what one host sends to another vanishes."""
        return target not in self.processes or self.topology.blocked(source, target) is not None

    def delay(self, source: str, target: str, link: Link | None = None) -> float:
        """Seconds that a message takes now over the link between two hosts (looked up if not given), drawn anew."""
        link = link or self.topology.between(source, target)
        seconds = link.delay
        if link.jitter:
            seconds += self.chance.exponential(link.jitter, "jitter", source, target)
        if link.loss:
            again = max(RTO, 3 * link.delay)
            while self.chance.happens(link.loss, "loss", source, target):
                seconds += again
                again *= 2
        return seconds

    def round_trip(self, a: str, b: str) -> float:
        """Least seconds there and back."""
        return self.topology.between(a, b).delay + self.topology.between(b, a).delay

    def port(self) -> int:
        """A port that nobody had yet."""
        return next(self._ports)
