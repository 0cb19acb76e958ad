"""Every worker is killed and started again, one after the other.

Its disk stays, and it is back a moment later, in the same release. What must be seen: rounds go on being committed, no
promise on disk is broken (which is looked at all along), and at the end everybody is back with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim import mesh
from sim.faults import Crash, Restart
from sim.settings import setting
from sim.stage import Stage


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    clusters: int = setting(4, "how many clusters", least=2)
    down: float = setting(2.0, "seconds for which a worker is down", least=0)
    pause: float = setting(20.0, "seconds from one restart to the next", above=0)


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.built(stage, settings)
    stage.await_commits(1, within=settings.period)
    stage.snapshot("before")
    began = world.now
    for host in world.every_host():
        stage.fault(Crash(host.name))
        world.run_for(settings.down)
        stage.fault(Restart(host.name))
        world.run_for(settings.pause)
    ended = world.now
    world.run_until(world.believes_all, within=120, what="everybody is back")
    stage.await_commits(2, within=3 * settings.period + 60, having=tuple(world.clusters))
    mesh.settle(stage, within=settings.period)
    stage.snapshot("after")
    meanwhile = [a for a in stage.committed(began) if (a.ended or 0.0) <= ended]
    least = max(1, int((ended - began) / (4 * settings.period)))
    stage.check("rounds go on meanwhile", len(meanwhile) >= least, seen=len(meanwhile), wanted=f"at least {least}")
    lives = {host.lives for host in world.every_host()}
    stage.check(
        "everybody was restarted", min(lives) >= 2, seen=f"{min(lives)} to {max(lives)} lives", wanted="at least 2"
    )
    mesh.check_counted(stage)
