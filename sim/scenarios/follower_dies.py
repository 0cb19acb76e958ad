"""A follower inside a cluster dies, and nobody but its mates needs to care.

Demonstration 1.1a. All clusters train; a worker that does not lead is killed. What must be seen: its cluster goes on
smaller under the same leader, the others notice nothing but the smaller number of workers, no round is aborted or goes
on without anybody, and no process is restarted anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim import mesh
from sim.faults import Crash
from sim.settings import setting
from sim.stage import Stage
from sim.world import World


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    workers: int = setting(2, "workers of each cluster", least=2)
    rounds: int = setting(3, "committed rounds before and after the death", least=1)


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.built(stage, settings)
    stage.await_commits(settings.rounds, within=settings.rounds * settings.period)
    leaders = world.leaders()
    cluster = list(world.clusters)[1]
    follower = next(host.name for host in world.of(cluster) if host.name != leaders[cluster])
    stage.snapshot("before")
    died = stage.fault(Crash(follower))
    noticed = world.run_until(
        lambda: _sizes(world, cluster) == {settings.workers - 1}, within=60, what="all clusters know of the death"
    )
    stage.await_commits(settings.rounds, within=settings.rounds * settings.period, having=tuple(world.clusters))
    mesh.settle(stage, within=settings.period)
    stage.snapshot("after")
    stage.within(f"all leaders know that {cluster} is smaller", noticed, 30.0)
    stage.check("every cluster keeps its leader", world.leaders() == leaders, seen=len(world.leaders()))
    aborted = [a for a in stage.attempts.values() if a.opened > died and a.aborted]
    stage.check("no round was aborted", not aborted, seen=len(aborted), wanted=0)
    alone = [a.round for a in stage.committed(died) if len(a.participants) < settings.clusters]
    stage.check("no round went on without a cluster", not alone, seen=" ".join(map(str, alone)) or "none")
    mesh.check_counted(stage)
    mesh.check_lives(stage)


def _sizes(world: World, cluster: str) -> set[int]:
    """How many workers the leaders of the other clusters think that one has."""
    cores = [world.hosts[name].core for of, name in world.leaders().items() if of != cluster]
    cards = [core.directory.clusters.get(cluster) for core in cores if core is not None]  # type: ignore[call-overload]
    return {len(card.workers) if card is not None else 0 for card in cards}
