"""The mesh falls into two parts that do not see each other, and grows together again.

Eight clusters, five on one side. What must be seen: the five go on committing rounds; the three apply nothing,
whatever they try; when the partition heals, the three fetch the state and are back within a round or two, what they
had computed meanwhile is counted once, and everybody ends with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.errors import ConfigError
from sim import mesh
from sim.faults import Heal, Partition
from sim.settings import setting
from sim.stage import Stage
from sim.world import World


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    clusters: int = setting(8, "how many clusters", least=3)
    minority: int = setting(3, "how many of them are cut off", least=1)
    rounds: int = setting(3, "rounds that the larger part commits alone", least=1)
    how: str = setting("blackhole", "what happens to packets: blackhole or reset", of=("blackhole", "reset"))


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    if 2 * settings.minority >= settings.clusters:
        raise ConfigError(f"minority={settings.minority} must be less than half of clusters={settings.clusters}")
    world = mesh.built(stage, settings)
    stage.await_commits(2, within=2 * settings.period)
    clusters = list(world.clusters)
    few = tuple(clusters[-settings.minority :])
    stage.snapshot("before")
    before = _versions(world, few)
    cut = stage.fault(Partition(few, how=settings.how))  # type: ignore[arg-type]
    first = stage.await_commits(1, within=settings.period + 90)
    stage.say(f"the larger part commits, {first:.1f} s after the cut")
    stage.await_commits(settings.rounds - 1, within=settings.rounds * settings.period)
    stage.snapshot("cut")

    during = _versions(world, few)
    applied = sorted(name for name in few if during[name] > before[name] + 1)
    stage.check("the smaller part applies nothing", not applied, seen=" ".join(applied) or "nothing")
    late = [a.round for a in stage.committed(cut + 1.0) if set(a.participants) & set(few) and a.opened > cut]
    stage.check("nobody of the smaller part is in a round", not late, seen=" ".join(map(str, late)) or "nobody")

    healed = stage.fault(Heal())
    together = world.run_until(world.believes_all, within=120, what="everybody knows everybody again")
    stage.say("everybody knows everybody again")
    known = world.now
    stage.await_commits(1, within=3 * settings.period + 60, having=tuple(clusters))
    rounds = sorted({a.round for a in stage.attempts.values() if a.opened > known})
    whole = next(a.round for a in stage.committed(healed) if len(a.participants) == len(clusters))
    mesh.settle(stage, within=settings.period)
    stage.snapshot("after")
    stage.within("everybody knows everybody after the heal", together, 60.0)
    behind = sum(number < whole for number in rounds)
    stage.check(
        "the smaller part is back within two rounds", behind <= 1, seen=f"{behind} without it", wanted="at most 1"
    )
    mesh.check_counted(stage)
    mesh.check_lives(stage)


def _versions(world: World, clusters: tuple[str, ...]) -> dict[str, int]:
    """The newest version of the state in each cluster."""
    held = world.versions()
    return {name: max(held.get(host.name, 0) for host in world.of(name)) for name in clusters}
