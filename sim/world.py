"""A world of clusters, links and faults that runs real peers: the face of the simulator.

    from sim import World

    with World(seed=7) as world:
        world.cluster("a", workers=2, up=125e6, down=125e6)
        world.cluster("b", workers=2)
        world.link("a", "b", delay=0.04, bandwidth=50e6)
        world.run_until(lambda: world.version() >= 3, within=60)
        world.crash(world.leaders()["a"])
        world.run_until(lambda: world.version() >= 6, within=60)

Everything is a function of the seed and of the calls made. Hosts are named "cluster/number" ("a/0"), and each runs
one `ictp2p.async_peer.AsyncPeer`, unmodified, on its own address, disk, clock and generator. Times are true virtual
seconds, sizes bytes, rates bytes per second. After each advance the invariants are looked at; a breach raises
`sim.invariants.Breach`, whose message holds the seed, the fault plan and the last events.

What a world knows is asked of `leaders()`, `members()`, `routes()`, `commits()`, `version()` and `trace`.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.config import Config
from ictp2p.config.values import PRESETS
from ictp2p.errors import IctError
from ictp2p.machine import Notice
from ictp2p.security import PlainSecurity
from ictp2p.sync import acceptor
from ictp2p.telemetry import Event
from ictp2p.types import PeerId
from sim.chance import Chance
from sim.faults import Fault, FaultPlan
from sim.invariants import Auditor, Breach, Finding
from sim.loop import Process, SimLoop
from sim.network import Internet, SimNetwork
from sim.topology import Barrier, How, Site, Topology
from sim.trace import Trace
from sim.workload import Committed, Ledger, Worker, Workload

if TYPE_CHECKING:
    from types import TracebackType

    from ictp2p.core.stack import Core

PORT = 7450
"""Where every simulated peer listens."""
FINGERPRINT = b"simulate"
SEEDS = 3
"""Addresses that a joining host is given, at most."""
RESTART_PAUSE = 1.0
"""Seconds after which a peer that could not start is started again, as a supervisor would."""
SWEEP = 0.5
"""Seconds between two looks at what no notice announces."""
_TOKEN = "simulated-mesh-token"
_TOLD = 40  # events in the message of a breach


class Disk:
    """What one host keeps (`ictp2p.disk.Disk`); every save is durable when it returns."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.saves = 0
        self.before: Callable[[], None] | None = None
        """Called before a value is written; may end the process."""
        self.after: Callable[[], None] | None = None
        """Called once it is durable."""

    def load(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return self.values.get(key)


class _Mounted:
    """A disk as one process sees it: once that is dead, it writes no more."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk = disk
        self._process = process

    def load(self, key: str) -> bytes | None:
        return self._disk.load(key)

    def save(self, key: str, value: bytes) -> None:
        disk = self._disk
        if self._process.alive and disk.before is not None:
            disk.before()
        if self._process.alive:
            disk.values[key] = bytes(value)
            disk.saves += 1
            if disk.after is not None:
                disk.after()


class Host:
    """One machine: its disk outlives its processes.

    Args:
        world: where.
        cluster: whose worker it is.
        number: which one, from 0.
        rank: its preference for leadership.
    """

    def __init__(self, world: World, cluster: str, number: int, rank: int) -> None:
        self.world = world
        self.cluster = cluster
        self.name = f"{cluster}/{number}"
        self.rank = rank
        self.disk = Disk()
        self.lives = 0
        """Processes that were started."""
        self.process: Process | None = None
        """What runs, if anything."""
        self.peer: AsyncPeer | None = None
        """The peer of the running process; maybe not started yet."""
        self.worker: Worker | None = None
        """Its training side, once the peer has started."""
        self.slowness = 1.0
        """How many times longer its inner phases take."""
        self.gone = False
        """It left for good."""
        self.skew = (0.0, 1.0)
        self._units = 0

    @property
    def core(self) -> Core | None:
        """The control plane of the running peer."""
        return getattr(self.peer, "core", None) if self.process is not None else None

    @property
    def id(self) -> PeerId | None:
        """The running peer's id."""
        return self.peer.id if self.peer is not None and self.process is not None else None

    @property
    def alive(self) -> bool:
        """Whether a process runs (it may be paused)."""
        return self.process is not None

    @property
    def term(self) -> int:
        """The term in which its cluster is led, as it knows."""
        return self.core.m.election.term if self.core is not None else 0

    @property
    def leads(self) -> bool:
        """Whether it believes to lead its cluster."""
        return self.core is not None and self.core.leading

    def serial(self) -> int:
        """Number the next unit of work; numbers go on through crashes."""
        self._units += 1
        return self._units

    def note(self, kind: str, **fields: Any) -> None:
        """Put an event in the trace, if this host lives."""
        if self.process is not None and self.process.alive:
            self.world.trace.event(self.name, kind, **fields)

    def context(self) -> contextvars.Context | None:
        """Where callbacks of the running process belong."""
        return self.process.context if self.process is not None else None

    def __repr__(self) -> str:
        state = "gone" if self.gone else "leads" if self.leads else "up" if self.alive else "down"
        return f"<Host {self.name} {state} life={self.lives}>"


@dataclass(slots=True)
class Cluster:
    """One cluster as it was declared."""

    name: str
    workers: int
    profile: str
    workload: Workload | None
    at: float
    nat: bool = False


class World:
    """See the module's docstring.

    Args:
        seed: of everything.
        profile: kind of network between clusters ("local", "lan", "wan") for clusters that name none.
        elide: let large payloads travel as sizes only; with workloads that are elided too.
        audit: look at the invariants.
        encrypt: seal bulk bytes, as in the real world; costs processor time and changes no timing.
        spare_state: do not crash the last worker that holds the newest version of the state. The state lives in
            memory: when all who hold it are dead it is lost, and no mesh goes on from there.
        waive: rules whose breach is counted in `auditor.waived` and does not stop the world: for campaigns that look
            for something else than what is known already.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        profile: str = "local",
        elide: bool = False,
        audit: bool = True,
        encrypt: bool = False,
        spare_state: bool = False,
        waive: Collection[str] = (),
    ) -> None:
        self.seed = seed
        self.profile = profile
        self.encrypt = encrypt
        self.spare_state = spare_state
        self.loop = SimLoop()
        self.chance = Chance(seed)
        self.topology = Topology()
        self.trace = Trace(lambda: self.loop.now)
        self.internet = Internet(self.loop, self.chance, self.topology, self.trace.delivery, elide=elide)
        self.auditor = Auditor(self, waive)
        self.ledger = Ledger(self.auditor.complain, checked=not elide)
        self.hosts: dict[str, Host] = {}
        """Every host there ever was, by name, in the order in which they came."""
        self.clusters: dict[str, Cluster] = {}
        """Every cluster that was declared."""
        self.history: list[tuple[float, Fault]] = []
        """Faults that happened, and when."""
        self._audit = audit
        self._context = contextvars.Context()
        self._blank: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._owners: dict[PeerId, Host] = {}
        self._closed = False

    # ------------------------------------------------------------ building

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

        Returns:
            its hosts.
        """
        if name in self.clusters:
            raise ValueError(f"cluster {name!r} is there already")
        self.topology.sites[name] = Site(name, up, down, nat)
        load = Workload(compute=compute, elements=elements, elide=self.internet.elide, rounds=rounds) if train else None
        self.ledger.elements = elements
        self.clusters[name] = Cluster(name, 0, profile or self.profile, load, at or 0.0, nat)
        hosts = [self.host(name, at=None) for _ in range(workers)]
        if at is not None:
            for host in hosts:
                self.at(at, lambda host=host: self._boot(host))  # type: ignore[misc]
        return hosts

    def host(self, cluster: str, *, at: float | None = 0.0, rank: int = 0) -> Host:
        """Add a worker to a cluster; it joins in `at` seconds (None: only by `restart`)."""
        declared = self.clusters[cluster]
        host = Host(self, cluster, declared.workers, rank)
        site = list(self.topology.sites).index(cluster) + 1
        self.internet.host(host.name, cluster, f"10.{site >> 8}.{site & 255}.{declared.workers + 1}")
        declared.workers += 1
        self.hosts[host.name] = host
        if at is not None:
            self.at(at, lambda: self._boot(host))
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
        one_way: bool = False,
    ) -> None:
        """Set what is given of the link between two clusters (`a` = `b`: the network inside one; "*": all others)."""
        given = {"bandwidth": bandwidth, "delay": delay, "jitter": jitter, "loss": loss, "corrupt": corrupt}
        changes = {name: value for name, value in given.items() if value is not None}
        for one, other in self._pairs(a, b, one_way=one_way):
            link = self.topology.link(one, other)
            for name, value in changes.items():
                setattr(link, name, float(value))
            link.__post_init__()
        self._act(self.internet.changed)

    def links(self, **values: float) -> None:
        """Set the link between every two clusters that have none of their own yet; call it before the others."""
        for name, value in values.items():
            setattr(self.topology.default, name, float(value))

    def trunk(self, name: str, pairs: Iterable[tuple[str, str]], bandwidth: float) -> None:
        """Have directed pairs of clusters share one more resource."""
        self.topology.trunk_bandwidth[name] = float(bandwidth)
        for pair in pairs:
            self.topology.trunks.setdefault(pair, []).append(name)
        self._act(self.internet.changed)

    def access(self, cluster: str, *, up: float | None = None, down: float | None = None) -> None:
        """Change a cluster's access link."""
        site = self.topology.sites[cluster]
        site.up, site.down = up or site.up, down or site.down
        self._act(self.internet.changed)

    # ------------------------------------------------------------ time

    @property
    def founder(self) -> Host | None:
        """The host that founds the mesh: the first one that was declared."""
        return next(iter(self.hosts.values()), None)

    @property
    def now(self) -> float:
        """True virtual time, seconds."""
        return self.loop.now

    def run_for(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            Breach: an invariant does not hold, or a peer raised what nobody caught.
        """
        end = self.now + seconds
        while self.now < end:
            self._advance(min(end, self.now + SWEEP))

    def run_until(self, condition: Callable[[], object], within: float, *, step: float = 0.05, what: str = "") -> float:
        """Let time pass until `condition()` is true, looking every `step` seconds; give the seconds it took.

        Raises:
            Breach: an invariant does not hold, or the condition did not come true `within` so many seconds.
        """
        began, swept = self.now, self.now
        while not condition():
            if self.now >= began + within:
                text = what or getattr(condition, "__name__", "the condition")
                self._raise(Finding("liveness", self.now, f"{text} did not come true within {within:g} s"))
            self._advance(min(began + within, self.now + step), sweep=self.now - swept >= SWEEP)
            if self.now - swept >= SWEEP:
                swept = self.now
        return self.now - began

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        """Call `act` in so many seconds from now."""
        self.loop.at(self.now + seconds, act, context=self._context)

    def after(self, seconds: float, fault: Fault) -> None:
        """Let a fault happen in so many seconds from now."""
        self.at(seconds, lambda: self.inject(fault))

    def schedule(self, plan: FaultPlan) -> None:
        """Let a plan's faults happen, counted from now."""
        for seconds, fault in plan:
            self.after(seconds, fault)

    def inject(self, fault: Fault) -> None:
        """Let a fault happen now."""

        def act() -> None:
            self.history.append((self.now, fault))
            self.trace.event("world", "fault", fault=fault)
            fault.apply(self)

        self._act(act)

    # ------------------------------------------------------------ verbs

    def crash(self, host: str, *, disk: str = "kept", power: bool = False) -> None:
        """Kill a host's process; with `power` the whole host goes dark. `disk` "lost" makes it another peer."""
        self._act(lambda: self._crash(self.hosts[host], disk, power))

    def crash_on_save(self, host: str, nth: int = 1, *, written: bool = False, power: bool = False) -> None:
        """Kill a host's process at its n-th save from now, before the value is durable, or right after."""
        target = self.hosts[host]
        due = target.disk.saves + nth

        def die() -> None:
            if target.disk.saves + (0 if written else 1) >= due:
                target.disk.before = target.disk.after = None
                self._crash(target, "kept", power)

        if written:
            target.disk.after = die
        else:
            target.disk.before = die

    def restart(self, host: str) -> None:
        """Start a host's peer (again) on the disk that it has."""

        def act() -> None:
            target = self.hosts[host]
            if target.alive:
                self._crash(target, "kept", power=False)
            if not (target.gone or target.alive):
                self._boot(target)

        self._act(act)

    def pause(self, host: str) -> None:
        """Stop a process."""
        self._act(lambda: self._with_process(host, self.loop.pause))

    def resume(self, host: str) -> None:
        """Let a paused process go on."""
        self._act(lambda: self._with_process(host, self.loop.resume))

    def cut(self, a: str, b: str, *, one_way: bool = False, how: How = "blackhole") -> None:
        """Let nothing pass from `a` to `b` (hosts or clusters, "*" for all), nor back unless `one_way`."""
        barrier = Barrier(a, b, one_way, how)

        def act() -> None:
            self.topology.cut(barrier)
            if how == "reset":
                crossing = self.topology.blocked
                self.internet.reset_between(lambda x, y: crossing(x, y) is not None or crossing(y, x) is not None)
            self.internet.changed()

        self._act(act)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Take down what was cut between `a` and `b`, or everywhere."""

        def act() -> None:
            if a is None and b is None:
                self.topology.mend_all()
            else:
                self.topology.mend_between(a or "*", b or "*")
            self.internet.changed()

        self._act(act)

    def partition(self, side: Iterable[str], *, how: How = "blackhole") -> None:
        """Cut the named clusters (or hosts) off from all the others."""
        inside = list(side)
        for other in self.clusters:
            if other not in inside:
                for name in inside:
                    if name.split("/")[0] != other:
                        self.cut(name, other, how=how)
        for name in inside:
            if "/" in name:
                for host in self.hosts.values():
                    if host.cluster == name.split("/")[0] and host.name not in inside:
                        self.cut(name, host.name, how=how)

    def reset_connections(self, a: str, b: str) -> None:
        """Reset every connection between two clusters or hosts, once."""

        def between(x: str, y: str) -> bool:
            one, two = {x, x.split("/")[0], "*"}, {y, y.split("/")[0], "*"}
            return (a in one and b in two) or (b in one and a in two)

        self._act(lambda: self.internet.reset_between(between))

    def skew(self, host: str, *, offset: float = 0.0, rate: float = 1.0) -> None:
        """Move a host's clock and change how fast it runs, now and in its next lives."""
        target = self.hosts[host]
        target.skew = (target.skew[0] + offset, rate)
        self._act(lambda: self._with_process(host, lambda process: process.set_clock(self.now, offset, rate)))

    def slow(self, host: str, *, cost: float = 0.0, factor: float = 1.0) -> None:
        """Make everything that a host does take `cost` seconds, and its inner phases `factor` times as long."""
        target = self.hosts[host]
        target.slowness = factor
        if target.process is not None:
            target.process.cost = cost

    def join(self, cluster: str, workers: int = 1) -> None:
        """Let a declared cluster join; if it runs already, one or more new workers of it."""

        def act() -> None:
            waiting = [h for h in self.of(cluster) if h.lives == 0]
            for host in waiting or [self.host(cluster, at=None) for _ in range(workers)]:
                self._boot(host)

        self._act(act)

    def leave(self, name: str) -> None:
        """Let a host, or all hosts of a cluster, leave politely."""

        def act() -> None:
            for host in self.of(name) if name in self.clusters else [self.hosts[name]]:
                if host.process is not None and not host.gone:
                    host.gone = True
                    self.loop.create_task(self._leave(host), context=host.process.context)

        self._act(act)

    def calm(self) -> None:
        """End every fault: mend all cuts, losses and corruption, let all processes go on, start all that crashed.

        What changed for good stays: bandwidths, delays, clocks, who left, whose disk is lost.
        """

        def act() -> None:
            self.topology.mend_all()
            for link in self.topology.every_link():
                link.loss = link.corrupt = 0.0
            for host in self.hosts.values():
                host.disk.before = host.disk.after = None
                host.slowness = 1.0
                if host.process is not None:
                    host.process.cost = 0.0
                    self.loop.resume(host.process)
                elif host.lives and not host.gone:
                    self._boot(host)
            self.internet.changed()

        self.trace.event("world", "calm")
        self._act(act)

    def settled(self) -> bool:
        """Whether all clusters that train are in the newest version of the state, and all peers agree on who is who."""
        training = {h.cluster for h in self.running() if self.clusters[h.cluster].workload is not None}
        newest = self.ledger.versions.get(self.version())
        return newest is not None and training <= set(newest.participants) and self.believes_all()

    # ------------------------------------------------------------ omniscience

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
        return self._owners.get(peer)

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

    def blank(self, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Input and output buffers that all elided contributions share."""
        if elements not in self._blank:
            self._blank[elements] = (torch.zeros(elements), torch.zeros(elements))
        return self._blank[elements]

    def plan(self) -> FaultPlan:
        """The faults that were injected so far, as a plan that does it again."""
        return FaultPlan.of(self.history)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Kill everything."""
        if self._closed:
            return
        self._closed = True

        def act() -> None:
            for host in self.hosts.values():
                if host.process is not None:
                    self._crash(host, "kept", power=True)

        self.loop.perform(act)
        self.loop.run_to(self.loop.now)
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        up = f"{len(self.running())}/{len(self.hosts)}"
        return f"<World seed={self.seed} t={self.now:.3f} hosts={up} version={self.version()}>"

    # ------------------------------------------------------------ inside

    def _act(self, act: Callable[[], object]) -> None:
        self.loop.perform(act)

    def _advance(self, when: float, *, sweep: bool = True) -> None:
        while True:
            self.loop.run_to(when)
            if self.loop.errors:
                self._raise(Finding("unhandled", self.now, self.loop.errors[0]))
            if sweep and self._audit:
                self.auditor.sweep()
            if self.auditor.findings and self._audit:
                self._raise(self.auditor.findings[0])
            if self.now >= when:
                return

    def _raise(self, finding: Finding) -> None:
        last = "\n".join(f"  {entry}" for entry in self.trace.entries[-_TOLD:])
        raise Breach(finding, f"seed {self.seed}, plan {self.plan().to_json()}\nlast events:\n{last}")

    def _with_process(self, host: str, act: Callable[[Process], object]) -> None:
        process = self.hosts[host].process
        if process is not None:
            act(process)

    def _pairs(self, a: str, b: str, *, one_way: bool) -> list[tuple[str, str]]:
        ones = list(self.clusters) if a == "*" else [a]
        others = list(self.clusters) if b == "*" else [b]
        pairs = [(x, y) for x in ones for y in others if x != y or a == b]
        if not one_way:
            pairs += [(y, x) for x, y in pairs]
        return list(dict.fromkeys(pairs))

    def _boot(self, host: Host) -> None:
        if self._closed:
            return
        host.lives += 1
        host.process = process = Process(host.name, *host.skew, now=self.now)
        self.internet.boot(host.name, process)
        self.trace.event(host.name, "boot", life=host.lives)
        self.loop.create_task(self._main(host, process), context=process.context)

    def _crash(self, host: Host, disk: str, power: bool) -> None:
        process = host.process
        if process is None:
            return
        if self.spare_state and not self._closed and self._is_last_holder(host):
            self.trace.event(host.name, "spared")
            return
        self.trace.event(host.name, "crash", disk=disk, power=power)
        host.process = host.peer = host.worker = None
        process.alive = False
        self.internet.stopped(process, power=power)
        self.loop.kill(process)
        if disk == "lost":
            host.disk = Disk()
            self._owners = {peer: owner for peer, owner in self._owners.items() if owner is not host}

    def _is_last_holder(self, host: Host) -> bool:
        holders = [name for name, version in self.versions().items() if version == self.version()]
        return holders == [host.name]

    async def _main(self, host: Host, process: Process) -> None:
        """What a supervisor does: start the peer until it starts, then train."""
        cluster = self.clusters[host.cluster]
        while True:
            peer = host.peer = self._make_peer(host, process)
            self._owners[peer.id] = host
            peer.telemetry.subscribe(lambda event: self._told(host, event))
            peer.subscribe(lambda notice: self._noticed(host, process, notice))
            try:
                await peer.start()
                break
            except IctError as error:
                host.note("start_failed", error=f"{type(error).__name__}: {error}")
                host.lives += 1
                await asyncio.sleep(RESTART_PAUSE)
        host.note("joined", cluster=host.cluster)
        if cluster.workload is not None:
            host.worker = Worker(host, peer, cluster.workload, self.ledger, host.serial)
            await host.worker.run()

    def _make_peer(self, host: Host, process: Process) -> AsyncPeer:
        cluster = self.clusters[host.cluster]
        rng = self.chance.generator("peer", host.name, str(host.lives))
        secrets = self.chance.generator("secrets", host.name, str(host.lives))
        config = Config.made(
            PRESETS["wan" if cluster.profile == "wan" else cluster.profile],
            {
                "cluster": host.cluster,
                "token": _TOKEN,
                "listen": f"{self.internet.addresses[host.name]}:{PORT}",
                "advertise": "none" if cluster.nat else "",
                "join": self._seeds(host),
                "data_dir": "simulated",
                "rank": host.rank,
                "encrypt": self.encrypt,
            },
        )
        return AsyncPeer(
            config,
            network=SimNetwork(self.internet, process),
            clock=self.loop.time,
            rng=rng,
            random_bytes=secrets.randbytes,
            disk=_Mounted(host.disk, process),
            security=lambda identity: PlainSecurity(identity.peer_id, FINGERPRINT),
        )

    def _seeds(self, host: Host) -> tuple[str, ...]:
        """Whom to ask for the way in: hosts that were there before, those that run and can be dialed first.

        The world's first host founds the mesh, and is configured for that for as long as it has its disk.
        """
        if host is self.founder and (host.lives == 1 or host.disk.values.get(acceptor.KEY) is not None):
            return ()
        others = [h for h in self.hosts.values() if h is not host and h.lives > 0 and not h.gone]
        open_ = [h for h in others if not self.clusters[h.cluster].nat or h.cluster == host.cluster]
        ranked = sorted(open_, key=lambda h: not h.alive)
        return tuple(f"{self.internet.addresses[h.name]}:{PORT}" for h in ranked[:SEEDS])

    async def _leave(self, host: Host) -> None:
        peer, process = host.peer, host.process
        assert peer is not None
        assert process is not None
        self.trace.event(host.name, "leaving")
        if host.worker is not None:
            peer.set_training(False, draining=True)
        await peer.leave()
        if host.process is process:
            self.at(0.0, lambda: self._crash(host, "kept", power=False))

    def _told(self, host: Host, event: Event) -> None:
        if event.kind != "reduce_progress":
            host.note(event.kind, **event.fields)

    def _noticed(self, host: Host, process: Process, notice: Notice) -> None:
        if process.alive:
            self.auditor.notice(host, notice)
