"""The path between two clusters breaks and heals, again and again.

Both reach the others all the time. What must be seen: control traffic goes round the broken path, so that neither is
taken for dead by anybody, rounds go on being committed, and when the flapping ends the direct route is taken again.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim import mesh
from sim.faults import LinkFlap
from sim.settings import setting
from sim.stage import Stage


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    clusters: int = setting(5, "how many clusters", least=3)
    times: int = setting(5, "how often the path breaks", least=1)
    down: float = setting(3.0, "seconds for which it is broken", above=0)
    up: float = setting(6.0, "seconds for which it is whole", above=0)
    how: str = setting("blackhole", "what happens to packets: blackhole or reset", of=("blackhole", "reset"))


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.built(stage, settings)
    stage.await_commits(2, within=2 * settings.period)
    a, b = list(world.clusters)[:2]
    stage.snapshot("before")
    fault = LinkFlap(a, b, settings.times, settings.down, settings.up, settings.how)  # type: ignore[arg-type]
    began = stage.fault(fault)
    world.run_for(settings.down * 0.9)
    stage.snapshot("broken")
    world.run_for(settings.times * (settings.down + settings.up) - settings.down * 0.9)
    ended = world.now
    stage.say("the path is whole from now on")
    world.run_until(
        lambda: world.routes().get((a, b)) == b and world.routes().get((b, a)) == a, within=120, what="the direct route"
    )
    stage.await_commits(2, within=2 * settings.period + 60, having=tuple(world.clusters))
    mesh.settle(stage, within=settings.period)
    stage.snapshot("after")
    dead = [e for e in world.trace.of("member", since=began) if e.fields["status"] in ("failed", "dead", "left")]
    stage.check(
        "nobody is taken for dead", not dead, seen=" ".join(str(e.fields["member"])[:8] for e in dead) or "nobody"
    )
    meanwhile = [x for x in stage.committed(began) if (x.ended or 0.0) <= ended]
    least = int((ended - began) / (2 * settings.period))
    stage.check("rounds go on meanwhile", len(meanwhile) >= least, seen=len(meanwhile), wanted=f"at least {least}")
    mesh.check_counted(stage)
    mesh.check_lives(stage)
