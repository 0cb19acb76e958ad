"""Clusters as they are: far apart, of different sizes, with different access links, over a shared ocean cable.

Europe, America and Asia; a data centre, a university, an office; some loss and jitter; between the continents a
cable that all pairs share. What must be seen: everybody finds everybody, all take part in every round, the plan
predicts what a round takes, and the slowest uplink is not made to carry what it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim import mesh
from sim.settings import setting
from sim.stage import Stage
from sim.world import World

PLACES = {
    # name: (continent, workers, share of `access` up, share of it down)
    "oslo": ("europe", 3, 1.0, 1.0),
    "zurich": ("europe", 2, 0.5, 1.0),
    "boston": ("america", 4, 1.0, 1.0),
    "lima": ("america", 1, 0.25, 0.5),
    "tokyo": ("asia", 2, 1.0, 1.0),
    "delhi": ("asia", 2, 0.5, 0.5),
}
HEADER = 1.5
"""Times what was planned that a round may take, and `START` seconds: agreement and slow start are not planned."""
START = 4.0
DELAYS = {("america", "europe"): 0.045, ("asia", "europe"): 0.11, ("america", "asia"): 0.075}
"""Seconds one way between continents; within one: 10 ms."""


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    clusters: int = setting(6, f"how many clusters, of {', '.join(PLACES)}", least=2, most=len(PLACES))
    cable: float = setting(3e6, "bytes/s that all pairs between two continents share, each way", above=0)
    loss: float = setting(0.001, "share of the segments that links between continents lose", least=0)
    rounds: int = setting(5, "rounds to be committed", least=3)


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.world(stage, settings)
    names = list(PLACES)[: settings.clusters]
    for name in names:
        _, workers, up, down = PLACES[name]
        mesh.cluster(stage, settings, name, workers=workers, up=up * settings.access, down=down * settings.access)
    _connect(world, names, settings)
    mesh.gather(stage)
    stage.snapshot("at the start")
    slowest = settings.period + 16 * settings.megabytes * 1e6 / min(settings.access, settings.cable)
    stage.await_commits(settings.rounds, within=settings.rounds * slowest)
    mesh.settle(stage, within=slowest)
    stage.snapshot("at the end")
    alone = [a.round for a in stage.committed() if len(a.participants) < len(names)]
    stage.check("all take part in every round", not alone, seen=" ".join(map(str, alone)) or "all", wanted="all")
    seconds = [a.seconds for a in stage.committed()]
    stage.check(
        "rounds do not get slower as links are measured",
        min(seconds[1:]) <= 1.2 * seconds[0],
        seen=" ".join(f"{x:.1f}" for x in seconds),
        wanted=f"one of the later at most {1.2 * seconds[0]:.1f} s",
    )
    over = max(a.seconds - HEADER * a.plan.seconds for a in stage.committed() if a.plan is not None)
    stage.within("a round, beyond what was planned and half as much", over, START)
    mesh.check_counted(stage)
    mesh.check_lives(stage)


def _connect(world: World, names: list[str], settings: Settings) -> None:
    trunks: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for a in names:
        for b in names:
            here, there = PLACES[a][0], PLACES[b][0]
            if here != there:
                ends = (here, there) if here < there else (there, here)
                world.link(a, b, delay=DELAYS[ends], jitter=0.002, loss=settings.loss, one_way=True)
                trunks.setdefault((here, there), []).append((a, b))
            elif a != b:
                world.link(a, b, delay=0.01, one_way=True)
    for (here, there), pairs in trunks.items():
        world.trunk(f"{here}-{there}", pairs, settings.cable)
