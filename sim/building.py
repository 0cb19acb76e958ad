"""Building a world: clusters, their hosts, and what lies between them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ictp2p.errors import ConfigError
from ictp2p.types import cluster_id
from sim.host import Cluster, Host
from sim.limits import RATE, check
from sim.topology import Link, Site
from sim.training import Program
from sim.view import View
from sim.workload import Workload


class Building(View):
    """Clusters and links; both may change while the world runs."""

    def cluster(
        self,
        name: str,
        workers: int = 2,
        *,
        up: float = math.inf,
        down: float = math.inf,
        nat: bool = False,
        compute: float = 1.0,
        elements: int = 64,
        train: bool = True,
        at: float | None = 0.0,
        profile: str | None = None,
        rounds: int | None = None,
        resume: bool = True,
        saves: int = 0,
        program: Program | None = None,
    ) -> list[Host]:
        """Declare a cluster.

        Args:
            name: a cluster name.
            workers: how many.
            up: what all of them together may send to other clusters, bytes/s.
            down: what they may receive from them, bytes/s.
            nat: whether others cannot dial them.
            compute: seconds of an inner phase.
            elements: float32 elements of the state; the same in all clusters.
            train: whether it takes part in rounds at all; else it is control plane only.
            at: when it joins, in seconds from now; None: only by `join`.
            profile: kind of network between clusters; None: the world's.
            rounds: stop training at this version of the state.
            resume: whether its workers offer what they begin with, where the mesh has lost its state.
            saves: of so many versions its workers write one to a checkpoint, for their next life; 0: none.
            program: what its workers run to train, instead of a workload; see `sim.training`.

        Returns:
            its hosts.

        Raises:
            ConfigError: no cluster can have that name, or one has it.
        """
        if cluster_id(name) in self.clusters:
            raise ConfigError(f"cluster {name!r} is there already")
        self.topology.sites[name] = Site(name, up, down, nat)
        load = (
            Workload(
                compute=compute,
                elements=elements,
                elide=self.internet.elide,
                rounds=rounds,
                resume=resume,
                saves=saves,
            )
            if train and program is None
            else None
        )
        self.ledger.elements = elements
        self.clusters[name] = Cluster(name, 0, profile or self.profile, load, nat, program)
        hosts = [self.host(name, at=None) for _ in range(workers)]
        if at is not None:
            for host in hosts:
                self.at(at, lambda host=host: self.supervisor.boot(host))  # type: ignore[misc]
        return hosts

    def host(self, cluster: str, *, at: float | None = 0.0, rank: int = 0) -> Host:
        """Add a worker to a cluster; it joins in `at` seconds (None: only by `restart`).

        Raises:
            ConfigError: there is no such cluster.
        """
        self._check_declared(cluster)
        declared = self.clusters[cluster]
        host = Host(self, cluster, declared.workers, rank)
        site = list(self.topology.sites).index(cluster) + 1
        self.internet.host(host.name, cluster, f"10.{site >> 8}.{site & 255}.{declared.workers + 1}")
        declared.workers += 1
        self.hosts[host.name] = host
        if at is not None:
            self.at(at, lambda: self.supervisor.boot(host))
        return host

    def link(
        self,
        a: str,
        b: str,
        *,
        bandwidth: float | None = None,
        delay: float | None = None,
        jitter: float | None = None,
        loss: float | None = None,
        corrupt: float | None = None,
        window: float | None = None,
        swallows: bool | None = None,
        one_way: bool = False,
    ) -> None:
        """Set what is given of the link between two clusters (`a` = `b`: the network inside one; "*": all others).

        Raises:
            ConfigError: there is no such cluster, or a value cannot be.
        """
        self._check_declared(*(end for end in (a, b) if end != "*"))
        given = {"bandwidth": bandwidth, "delay": delay, "jitter": jitter, "loss": loss, "corrupt": corrupt}
        given |= {"window": window, "swallows": swallows}
        changes = {name: value for name, value in given.items() if value is not None}
        for one, other in self._pairs(a, b, one_way=one_way):
            _change(self.topology.link(one, other), changes)
        self.loop.perform(self.internet.changed)

    def links(self, **values: Any) -> None:
        """Set the link between every two clusters that have none of their own yet; call it before the others."""
        _change(self.topology.default, values)

    def trunk(self, name: str, pairs: Iterable[tuple[str, str]], bandwidth: float) -> None:
        """Have directed pairs of clusters share one more resource.

        Raises:
            ConfigError: there is no such cluster, or a value cannot be.
        """
        pairs = list(pairs)
        self._check_declared(*(end for pair in pairs for end in pair))
        check(f"trunk {name}: bandwidth", bandwidth, RATE)
        self.topology.trunk_bandwidth[name] = float(bandwidth)
        for pair in pairs:
            self.topology.trunks.setdefault(pair, []).append(name)
        self.loop.perform(self.internet.changed)

    def access(self, cluster: str, *, up: float | None = None, down: float | None = None) -> None:
        """Change a cluster's access link.

        Raises:
            ConfigError: there is no such cluster, or a value cannot be.
        """
        self._check_declared(cluster)
        given = {"up": up, "down": down}
        _change(self.topology.sites[cluster], {name: value for name, value in given.items() if value is not None})
        self.loop.perform(self.internet.changed)

    def _check_declared(self, *names: str) -> None:
        """Check that there are such clusters: a link to one that is misspelt would be there, and carry nothing."""
        strange = next((name for name in names if name not in self.clusters), None)
        if strange is not None:
            raise ConfigError(f"{strange!r} is no cluster: use one of {', '.join(self.clusters)}")

    def _pairs(self, a: str, b: str, *, one_way: bool) -> list[tuple[str, str]]:
        ones = list(self.clusters) if a == "*" else [a]
        others = list(self.clusters) if b == "*" else [b]
        pairs = [(x, y) for x in ones for y in others if x != y or a == b]
        if not one_way:
            pairs += [(y, x) for x, y in pairs]
        return list(dict.fromkeys(pairs))


def _change(what: Link | Site, changes: Mapping[str, Any]) -> None:
    """Change all of it, or nothing if a value cannot be."""
    new = dataclasses.replace(what, **changes)
    for name in changes:
        setattr(what, name, type(getattr(what, name))(getattr(new, name)))
