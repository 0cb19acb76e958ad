"""What one cluster sends is lost, while it still hears the others.

The fault that many consensus systems do not live through: the mute cluster believes that all is well, or that the
others are gone, and each change of mind disturbs them. What must be seen: the others go on committing without it,
nobody else loses its office, and after the heal the mute one is back and everybody ends with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim import mesh
from sim.faults import Cut, Heal
from sim.settings import setting
from sim.stage import Stage


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    clusters: int = setting(5, "how many clusters", least=3)
    rounds: int = setting(3, "rounds that the others commit meanwhile", least=1)
    deaf: bool = setting(False, "whether the cluster is deaf instead: what is sent to it is lost")


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.built(stage, settings)
    stage.await_commits(2, within=2 * settings.period)
    *others, one = world.clusters
    leaders = world.leaders()
    stage.snapshot("before")
    began = stage.fault(Cut("*", one, one_way=True) if settings.deaf else Cut(one, "*", one_way=True))
    first = stage.await_commits(1, within=settings.period + 120)
    stage.await_commits(settings.rounds - 1, within=settings.rounds * settings.period)
    stage.snapshot("cut")
    stage.within("the others commit", first, settings.period + 60.0)
    alone = [a for a in stage.committed(began) if one not in a.participants]
    stage.check("they commit without it", alone, seen=f"{len(alone)} rounds", wanted="at least 1")
    kept = {name: leader for name, leader in world.leaders().items() if name in others}
    wanted = {name: leader for name, leader in leaders.items() if name in others}
    stage.check("the others keep their leaders", kept == wanted, seen=f"{len(kept)} leaders", wanted=len(wanted))
    stage.fault(Heal())
    world.run_until(world.believes_all, within=120, what="everybody knows everybody again")
    stage.await_commits(1, within=3 * settings.period + 60, having=tuple(world.clusters))
    mesh.settle(stage, within=settings.period)
    stage.snapshot("after")
    mesh.check_counted(stage)
    mesh.check_lives(stage)
