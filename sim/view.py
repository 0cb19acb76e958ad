"""What someone who sees everything knows of a world: who runs, leads, routes and holds what."""

from __future__ import annotations

import numpy as np
import torch

from ictp2p.types import PeerId
from sim.ground import Ground
from sim.host import Host
from sim.ledger import Committed


class View(Ground):
    """Questions that change nothing."""

    def __init__(self, seed: int, profile: str, *, elide: bool, audit: bool) -> None:
        super().__init__(seed, profile, elide=elide, audit=audit)
        self._blank: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def founder(self) -> Host | None:
        """The host that founds the mesh: the first one that was declared."""
        return next(iter(self.hosts.values()), None)

    def of(self, cluster: str) -> list[Host]:
        """A cluster's hosts, in order."""
        return [host for host in self.hosts.values() if host.cluster == cluster]

    def running(self) -> list[Host]:
        """The hosts whose peer runs."""
        return [host for host in self.hosts.values() if host.core is not None]

    def every_host(self) -> list[Host]:
        """All hosts."""
        return list(self.hosts.values())

    def host_of(self, peer: PeerId) -> Host | None:
        """The host that holds a peer's identity, running or not."""
        return self.supervisor.owner(peer)

    def joined(self, host: Host, other: Host) -> bool:
        """Whether what `host` sends to another one reaches the process that runs there, and no former one."""
        if host.peer is None or other.core is None:
            return False
        connection = host.peer.driver.connection(other.core.card.peer)
        return connection is not None and connection.process == other.core.card.bulk_public

    def mates(self, host: Host) -> list[Host]:
        """The other living hosts of its cluster that it can reach now."""
        return [
            mate
            for mate in self.of(host.cluster)
            if mate is not host and mate.worker is not None and not self.internet.blocked(host.name, mate.name)
        ]

    def leaders(self) -> dict[str, str]:
        """The host that leads each cluster: of those that believe so, the one with the highest term."""
        best: dict[str, Host] = {}
        for host in self.running():
            if host.leads and (host.cluster not in best or best[host.cluster].term < host.term):
                best[host.cluster] = host
        return {cluster: host.name for cluster, host in best.items()}

    def members(self, host: str) -> dict[str, str]:
        """The mesh as a host sees it: status by cluster ("ALIVE", "SUSPECT", "DEAD", "LEFT")."""
        core = self.hosts[host].core
        if core is None:
            return {}
        seen = {name: member.status.name for name, member in sorted(core.m.mesh.members.items())}
        return {**seen, self.hosts[host].cluster: "ALIVE"}

    def routes(self, traffic_class: int = 0) -> dict[tuple[str, str], str]:
        """The next hop from each cluster to each other one, as the clusters' leaders have it."""
        hops: dict[tuple[str, str], str] = {}
        for cluster, name in self.leaders().items():
            core = self.hosts[name].core
            assert core is not None
            for route in core.m.routes.routes():
                if route.traffic_class == traffic_class:
                    hops[cluster, route.destination] = route.next_hop
        return hops

    def version(self) -> int:
        """The newest version of the global state that any peer knows to be agreed; 0 before the first."""
        return max(self.ledger.versions, default=0)

    def versions(self) -> dict[str, int]:
        """The version of the state that each running worker holds."""
        return {h.name: h.worker.state.version for h in self.hosts.values() if h.worker is not None}

    def commits(self) -> list[Committed]:
        """All versions of the global state, oldest first: when, by whom, with which digest."""
        return [self.ledger.versions[version] for version in sorted(self.ledger.versions)]

    def believes_all(self) -> bool:
        """Whether every running peer knows one leader for its cluster, and every leader all clusters as alive."""
        leaders, names = self.leaders(), {h.cluster for h in self.running()}
        if not names or set(leaders) != names:
            return False
        for host in self.running():
            core = host.core
            assert core is not None
            if core.leader != self.hosts[leaders[host.cluster]].id:
                return False
            if set(core.m.mesh.alive()) | {host.cluster} != names:
                return False
        return True

    def settled(self) -> bool:
        """Whether all clusters that train are in the newest version of the state, and all peers agree on who is who."""
        training = {h.cluster for h in self.running() if self.clusters[h.cluster].workload is not None}
        newest = self.ledger.versions.get(self.version())
        return newest is not None and training <= set(newest.participants) and self.believes_all()

    def blank(self, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Input and output buffers that all elided contributions share."""
        if elements not in self._blank:
            ours, theirs = (np.zeros(elements, np.float32) for _ in range(2))  # no memory until it is written to
            self._blank[elements] = torch.from_numpy(ours), torch.from_numpy(theirs)
        return self._blank[elements]
