"""Many clusters, no training: membership, leaders and routes alone.

What must be seen: everybody knows everybody within a bounded time; the crash of a whole cluster is known to all
within 27 s, and of nobody else is it believed; when the cluster is back, all know that too, and each has a route to
each.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim import mesh
from sim.faults import Crash, Restart
from sim.settings import setting
from sim.stage import Stage
from sim.world import World

KNOWN = 27.0
"""Seconds within which all must know of a crash, by the WAN profile."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be set."""

    clusters: int = setting(32, "how many clusters", least=4)
    workers: int = setting(1, "workers of each cluster", least=1)
    delay: float = setting(0.03, "seconds one way between two clusters", least=0, most=60)
    loss: float = setting(0.0, "share of the segments that are lost", least=0)
    profile: str = setting("wan", "the peers' timeouts: local, lan or wan", of=("local", "lan", "wan"))
    quiet: float = setting(10.0, "seconds without a fault before the crash", above=0)

    def __post_init__(self) -> None:
        mesh.check_size(self.clusters, self.workers)


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = stage.open(profile=settings.profile, elide=True)
    world.links(delay=settings.delay, loss=settings.loss)
    names = mesh.names(settings.clusters)
    for name in names:
        world.cluster(name, workers=settings.workers, train=False)
    gathered = mesh.gather(stage, within=300)
    routed = world.run_until(lambda: _routed(world, names), within=300, what="everybody has a route to everybody")
    stage.within("everybody knows everybody", gathered, 60.0)
    stage.within("and has a route to everybody", routed, 60.0)
    quiet = world.trace.deliveries
    world.run_for(settings.quiet)
    each = (world.trace.deliveries - quiet) / len(world.hosts) / settings.quiet
    stage.say(f"each peer gets {each:.1f} messages per second")
    stage.snapshot("before")
    dead = names[len(names) // 2]
    for host in world.of(dead):
        stage.fault(Crash(host.name, power=True))
    others = [name for name in names if name != dead]
    known = world.run_until(lambda: _gone(world, dead), within=300, what=f"everybody knows that {dead} is dead")
    stage.within("everybody knows of the crash", known, KNOWN)
    wrong = _believed_dead(world, others)
    stage.check("nobody else is taken for dead", not wrong, seen=" ".join(wrong) or "nobody")
    world.run_until(lambda: _routed(world, others), within=300, what="everybody has a route to everybody that is left")
    stage.snapshot("without it")
    for host in world.of(dead):
        stage.fault(Restart(host.name))
    back = world.run_until(
        lambda: dead in world.leaders() and world.believes_all() and _routed(world, names),
        within=300, what=f"{dead} is back",
    )  # fmt: skip
    stage.within("it is back, with routes", back, 90.0)
    stage.snapshot("after")


def _routed(world: World, names: list[str]) -> bool:
    routes = world.routes()
    return all((a, b) in routes for a in names for b in names if a != b)


def _gone(world: World, cluster: str) -> bool:
    """Whether all leaders know that a cluster is dead."""
    return all(
        world.members(leader).get(cluster) not in ("ALIVE", "SUSPECT")
        for of, leader in world.leaders().items()
        if of != cluster
    )


def _believed_dead(world: World, others: list[str]) -> list[str]:
    """Clusters that live and are taken for dead by some leader."""
    seen = [world.members(leader) for leader in world.leaders().values()]
    return sorted({name for view in seen for name in others if view.get(name) == "DEAD"})
