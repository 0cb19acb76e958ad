"""Liveness: what must come true once the last fault has ended, and by when.

    world.calm()
    Recovery(world).run()

Safety alone is cheap: a mesh that does nothing breaks no rule. So every run ends with a time without faults, in which
the mesh must become whole again within `bounds`, measured from the moment at which the faults ended. TigerBeetle's
simulator found that runs which heal now and then hide endless loops of recovery; here nothing is mended but once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ictp2p.routing.algebra import INFINITY
from sim.invariants.bounds import bounds

if TYPE_CHECKING:
    from sim.host import Host
    from sim.world import World

_SLACK = 2.0
"""How much longer than the shortest a route may be at rest: news of less than a quarter waits, at both ends of each of
the few hops."""


class Recovery:
    """What a world owes from now on.

    Args:
        world: in which no fault is left, and none is due.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._began = world.now
        self._version = world.version()
        self._bounds = bounds(world)
        self.seconds: dict[str, float] = {}
        """When each rule came true, from the end of the faults."""

    def run(self) -> None:
        """Let time pass until all has come true.

        Raises:
            Breach: something did not, in time; the finding names the rule.
        """
        trains = any(self._world.clusters[host.cluster].workload is not None for host in self._there())
        self._await("E5", self._bounds.led, self._led, "every cluster has one leader in whom all its peers believe")
        self._await("G4", self._bounds.known, self._known, "all views of who is alive are equal and right")
        self._await("R9", self._bounds.routed, self._routed, "everybody has a route to everybody who is there")
        self._await("R8", self._bounds.routed, self._retracted, "nobody has a route to who is not there")
        self._await("R7", self._bounds.routed, self._shortest, "every route is as short as the links allow")
        if trains:
            self._await("A7", self._bounds.committed, self._committed, "another round has committed")
            self._await("A11", self._bounds.complete, self._complete, "every cluster takes part in the newest round")

    def crash(self, host: Host) -> None:
        """Cut a host's power, and wait until all others know (G1), and are led again (E5)."""
        world, began = self._world, self._world.now
        world.crash(host.name, power=True)
        within = began + self._bounds.crash - self._began
        self._await("G1", within, lambda: self._led() and self._known(), f"everybody knows of the end of {host.name}")

    def _await(self, rule: str, deadline: float, condition: Callable[[], bool], what: str) -> None:
        left = max(0.0, self._began + deadline - self._world.now)
        self._world.run_until(condition, within=left, what=what, rule=rule)
        self.seconds[rule] = self._world.now - self._began

    # ------------------------------------------------------------ who is there

    def _there(self) -> list[Host]:
        """Who should be there: whoever has a process, started up or not."""
        return [host for host in self._world.every_host() if host.alive and not host.gone]

    def _led(self) -> bool:
        leaders = self._world.leaders()
        return all(
            host.core is not None
            and host.cluster in leaders
            and host.core.leader == self._world.hosts[leaders[host.cluster]].id
            for host in self._there()
        )

    def _known(self) -> bool:
        """Every leader sees exactly the clusters that are there, every peer exactly its mates."""
        there = self._there()
        clusters = {host.cluster for host in there}
        for host in there:
            core = host.core
            if core is None:
                return False
            mates = {mate.id for mate in there if mate.cluster == host.cluster}
            if set(core.m.members.alive()) != mates or core.m.members.suspects():
                return False
            if core.leading and set(core.m.mesh.alive()) | {host.cluster} != clusters:
                return False
        return True

    # ------------------------------------------------------------ rounds

    def _committed(self) -> bool:
        return self._world.version() > self._version

    def _complete(self) -> bool:
        return self._committed() and self._world.settled()

    # ------------------------------------------------------------ routes

    def _leading(self) -> list[Host]:
        return [self._world.hosts[name] for name in self._world.leaders().values()]

    def _routed(self) -> bool:
        leading = self._leading()
        clusters = {host.cluster for host in self._there()}
        return len(leading) == len(clusters) and all(
            host.core is not None and host.core.m.routes.next_hop(cluster) is not None
            for host in leading
            for cluster in clusters - {host.cluster}
        )

    def _retracted(self) -> bool:
        leading = self._leading()
        clusters = {host.cluster for host in self._there()}
        return all(
            destination in clusters
            for host in leading
            if host.core is not None
            for destination, _ in host.core.m.routes.table.chosen
        )

    def _shortest(self) -> bool:
        """In class 0, no route is longer than the shortest path by more than the hysteresis of every hop allows."""
        costs: dict[tuple[str, str], int] = {}
        found: dict[tuple[str, str], int] = {}
        for host in self._leading():
            core = host.core
            if core is None:
                return False
            costs |= {(host.cluster, other): by[0] for other, by in core.m.routes.table.costs.items()}
            chosen = core.m.routes.table.chosen.items()
            found |= {(host.cluster, destination): choice.metric for (destination, k), choice in chosen if k == 0}
        best = _shortest_paths(costs)
        return all(metric <= _SLACK * best.get(pair, INFINITY) for pair, metric in found.items())


def _shortest_paths(costs: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Floyd's algorithm: the least sum of costs between every two."""
    names = sorted({name for pair in costs for name in pair})
    best = {pair: cost for pair, cost in costs.items() if cost < INFINITY}
    for via in names:
        for a in names:
            for b in names:
                if a != b and (a, via) in best and (via, b) in best:
                    best[a, b] = min(best.get((a, b), INFINITY), best[a, via] + best[via, b])
    return best
