"""Two clusters behind address translators, which nobody can dial, train with some that can be dialed.

The two can dial the public ones, and not each other: what they send each other must go through a public one, sealed.
What must be seen: everybody gets to know everybody, rounds commit with all in them, and when the public cluster
that is relied on most loses its leader, the relayed ones find another way; no attempt fails because a connection
between two of them took too long to make.
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.errors import ConfigError
from sim import mesh
from sim.faults import KillLeader
from sim.settings import setting
from sim.stage import Stage


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    clusters: int = setting(4, "how many clusters", least=3)
    workers: int = setting(2, "workers of each cluster that can be dialed; the others have one", least=2)
    hidden: int = setting(2, "how many of them cannot be dialed", least=1)
    rounds: int = setting(2, "committed rounds before and after the death", least=1)
    kill: bool = setting(True, "whether the leader of the cluster that is relied on dies")

    def __post_init__(self) -> None:
        mesh.Mesh.__post_init__(self)
        if self.hidden >= self.clusters:
            raise ConfigError(f"hidden={self.hidden} must be less than clusters={self.clusters}")


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.world(stage, settings)
    names = mesh.names(settings.clusters)
    hidden = names[-settings.hidden :]
    for name in names:
        mesh.cluster(stage, settings, name, nat=name in hidden, workers=1 if name in hidden else settings.workers)
    mesh.gather(stage)
    stage.say(f"{' and '.join(hidden)} cannot be dialed")
    stage.await_commits(settings.rounds, within=settings.rounds * settings.period + 60, having=tuple(names))
    stage.snapshot("before")
    hops = {(x, y): world.routes().get((x, y)) for x in hidden for y in hidden if x != y}
    relayed = all(hop is not None and hop not in hidden for hop in hops.values())
    shown = " ".join(f"{x}-{hop}-{y}" for (x, y), hop in hops.items()) or "only one"
    stage.check("those who cannot be dialed see each other through others", relayed, seen=shown)
    if settings.kill:
        _lose(stage, settings, next((hop for hop in hops.values() if hop), names[0]))
    mesh.settle(stage, within=settings.period)
    late = [f"{a.round}.{a.attempt}" for a in stage.attempts.values() if "no bulk connection" in a.aborted]
    stage.check("no attempt fails for want of a connection", not late, seen=" ".join(late) or "none")
    stage.snapshot("after")
    mesh.check_counted(stage)
    mesh.check_lives(stage)


def _lose(stage: Stage, settings: Settings, broker: str) -> None:
    """Kill the leader of the cluster that the others rely on."""
    world = stage.world
    stage.fault(KillLeader(broker))
    world.run_until(lambda: broker in world.leaders(), within=120, what=f"{broker} has another leader")
    allowed = (settings.rounds + 2) * settings.period + 60
    took = stage.await_commits(settings.rounds, within=allowed + 30, having=tuple(world.clusters))
    stage.within(f"{settings.rounds} more rounds with everybody", took, allowed)
