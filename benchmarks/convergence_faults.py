"""What happens to the meshes of `convergence.py`: a path goes dark, a leader dies, a cluster does, lines lose segments.

Each kind of run makes a world of so many clusters from a seed, and gives what it measured by name, in virtual seconds.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from convergence_bounds import COMPUTE, FARTHEST, NEAREST

from ictp2p.core.commands import MemberChanged
from ictp2p.machine import Notice
from ictp2p.routing.babel import RouteChanged
from sim.faults import Crash, Cut, Heal, KillLeader
from sim.host import Host
from sim.world import World

N = TypeVar("N", bound=Notice)
DELAYS = {"lan": (0.0001, 0.0005), "wan": (NEAREST, FARTHEST)}
"""Seconds one way between two clusters, at least and at most, by profile."""
JITTER = 0.2
"""Part of the least of these that each message takes longer, on average, at random."""
WARM = 20.0
"""Seconds of a world's life before the first fault at least: the first hellos and probes are over."""
CALM = 10.0
"""Seconds within which each fault falls at random, once the mesh has settled."""
REST = 24.0
"""Seconds without any change after which routing tables are at rest: more than the longest timer that could still
change one, a dump (16 s) and its answers."""
PATIENCE = 300.0
"""Virtual seconds to wait for anything before the run counts as failed."""
STEP = 0.05
"""Virtual seconds between two looks: what is measured is rounded up by this much at most."""
LOSS, LOSSY = 0.1, 300.0
"""Share of the segments that is lost, and virtual seconds for which."""
PAIR, FIRST, LAST = "c001", "c002", "c003"
"""The cluster of two workers, and those between which the path goes dark; the last of them dies in the end."""


def built(clusters: int, seed: int, *, train: bool, loss: float = 0.0, profile: str = "wan") -> World:
    """A world, still to be run."""
    world = World(seed, profile=profile)
    names = [f"c{n:03}" for n in range(clusters)]
    for name in names:
        world.cluster(name, workers=2 if name == PAIR else 1, compute=COMPUTE, train=train)
    connected(world, names, profile, loss)
    world.link(FIRST, LAST, delay=DELAYS[profile][0])  # no relay is faster: the path which will go dark is in use
    return world


def connected(world: World, names: Iterable[str], profile: str, loss: float = 0.0) -> None:
    """Give every two clusters a line, each of another length."""
    nearest, farthest = DELAYS[profile]
    for a, b in itertools.combinations(names, 2):
        delay = nearest + (farthest - nearest) * world.chance.uniform("delay", a, b)
        world.link(a, b, delay=delay, jitter=JITTER * nearest, loss=loss)


def settle(world: World, key: str) -> None:
    """Wait until all is well, and for a random while more."""
    names = list(world.clusters)
    trains = any(cluster.workload is not None for cluster in world.clusters.values())
    well = world.settled if trains else world.believes_all
    world.run_until(lambda: well() and works(world, names), PATIENCE, step=0.5, what="the mesh has settled")
    world.run_for(max(0.0, WARM - world.now) + CALM * world.chance.uniform("moment", key))


def control(clusters: int, seed: int) -> dict[str, float]:
    """Measure what needs no training."""
    with built(clusters, seed, train=False) as world:
        return {**path_dark(world), **leader_dies(world), **cluster_dies(world), "virtual": world.now}


def path_dark(world: World) -> dict[str, float]:
    """The path between two clusters goes dark. Only what had used it is watched: jitter alone moves routes too."""
    settle(world, "cut")
    names, changes = list(world.clusters), [0.0]
    used = {(host.name, *key) for host in world.running() if host.leads for key in through(world, host)}

    def changed(host: str, notice: RouteChanged) -> None:
        if (host, notice.destination, notice.traffic_class) in used:
            changes.append(world.now)

    silence = [listen(host, RouteChanged, changed) for host in world.running()]
    world.inject(Cut(FIRST, LAST))
    cut = world.now
    world.run_until(lambda: works(world, names), PATIENCE, step=STEP, what="every pair has a working route")
    working = world.now - cut
    world.run_until(lambda: world.now - changes[-1] >= REST, PATIENCE, step=1.0, what="routing tables are at rest")
    for stop in silence:
        stop()
    world.inject(Heal())
    return {"routed": working, "rest": max(working, changes[-1] - cut)}


def through(world: World, host: Host) -> Iterator[tuple[str, int]]:
    """The destinations and classes that a leader reaches over the path that will go dark."""
    leaders = {cluster: world.hosts[name].core for cluster, name in world.leaders().items()}
    for route in host.core.m.routes.routes() if host.core is not None else ():
        at, way = host.cluster, [host.cluster]
        while at != route.destination and len(way) <= len(leaders):
            hop = leaders[at].m.routes.next_hop(route.destination, route.traffic_class) if at in leaders else None
            if hop is None:
                break
            at = hop
            way.append(at)
        if any({x, y} == {FIRST, LAST} for x, y in itertools.pairwise(way)):
            yield route.destination, route.traffic_class


def leader_dies(world: World) -> dict[str, float]:
    """The leader of the cluster of two loses its power."""
    settle(world, "leader")
    heir = next(host for host in world.of(PAIR) if not host.leads)
    world.inject(KillLeader(PAIR, power=True))
    return {"leader": world.run_until(lambda: all_name(world, heir.id), PATIENCE, step=STEP, what="all know the heir")}


def cluster_dies(world: World) -> dict[str, float]:
    """A whole cluster loses its power."""
    settle(world, "crash")
    for host in world.of(LAST):
        world.inject(Crash(host.name, power=True))
    known = world.run_until(lambda: all_know(world, LAST), PATIENCE, step=STEP, what="all know of the crash")
    more = world.run_until(lambda: not routed(world, LAST), PATIENCE, step=STEP, what="no route leads to the dead")
    return {"known": known, "unrouted": known + more}


def rounds(clusters: int, seed: int) -> dict[str, float]:
    """Measure how long a mesh that trains goes without a commit."""
    with built(clusters, seed, train=True) as world:
        opened: list[float] = []
        settle(world, "leader")
        world.trace.subscribers.append(lambda entry: opened.append(entry.at) if entry.kind == "round_opened" else None)
        world.run_until(lambda: opened, PATIENCE, step=0.01, what="a round opens")
        world.inject(KillLeader(PAIR, power=True))
        leader = next_commit(world)
        in_step(world, clusters)
        settle(world, "crash")
        for host in world.of(LAST):
            world.inject(Crash(host.name, power=True))
        return {"leader": leader, "crash": next_commit(world), "virtual": world.now}


def in_step(world: World, clusters: int) -> None:
    """Wait for one more round that all come to: from its end on their inner phases begin and end at once."""
    before = world.version()

    def all_came() -> bool:
        return world.version() > before and len(world.commits()[-1].participants) == clusters

    world.run_until(all_came, PATIENCE, step=STEP, what="all clusters are in a round again")


def next_commit(world: World) -> float:
    """Seconds to the next version of the state."""
    since, version = world.now, world.version()
    world.run_until(lambda: world.version() > version, PATIENCE, step=STEP, what="a round commits")
    return world.commits()[-1].at - since


def all_name(world: World, leader: str | None) -> bool:
    """Whether every running peer takes this one for the leader of the cluster of two."""
    cores = [host.core for host in world.running()]
    return all(core is not None and core.directory.leader_of(PAIR) == leader for core in cores)


def all_know(world: World, cluster: str) -> bool:
    """Whether every other leader takes a cluster for dead."""
    others = [leader for of, leader in world.leaders().items() if of != cluster]
    return all(world.members(leader).get(cluster) == "DEAD" for leader in others)


def routed(world: World, cluster: str) -> bool:
    """Whether any leader has a route to a cluster."""
    leaders = (world.hosts[name].core for of, name in world.leaders().items() if of != cluster)
    return any(core is not None and core.m.routes.next_hop(cluster) is not None for core in leaders)


def works(world: World, names: Iterable[str]) -> bool:
    """Whether from every leader the next hops lead to every cluster, over paths that are whole."""
    leaders = {cluster: world.hosts[name] for cluster, name in world.leaders().items()}
    return all(_reaches(world, leaders, a, b) for a in names for b in names if a != b)


def _reaches(world: World, leaders: dict[str, Any], source: str, target: str) -> bool:
    at = source
    for _ in leaders:
        host = leaders.get(at)
        hop = host.core.m.routes.next_hop(target) if host is not None else None
        if hop is None or hop not in leaders or world.internet.blocked(host.name, leaders[hop].name):
            return False
        if hop == target:
            return True
        at = hop
    return False


def listen(host: Host, kind: type[N], told: Callable[[str, N], object]) -> Callable[[], None]:
    """Be told one kind of a peer's notices, with the host's name, until the result is called."""
    on = [True]
    if host.peer is not None:
        host.peer.subscribe(lambda notice: told(host.name, notice) if on and isinstance(notice, kind) else None)
    return on.clear


def lossy(clusters: int, seed: int) -> dict[str, float]:
    """A tenth of everything is lost: how many thought a cluster dead, or suspected one; then one dies in earnest."""
    seen: list[MemberChanged] = []
    with built(clusters, seed, train=True, loss=LOSS) as world:
        world.run_until(world.settled, PATIENCE, step=0.5, what="the mesh has settled")
        for host in world.running():
            listen(host, MemberChanged, lambda _, notice: seen.append(notice))
        before = world.version()
        world.run_for(LOSSY)
        told = Counter(notice.status for notice in seen if notice.scope == "mesh")
        counts = {"committed": world.version() - before, "deaths": told["dead"], "suspicions": told["suspect"]}
        return {**counts, **cluster_dies(world)}
