"""A new cluster joins a running training.

Demonstration 1.2. All clusters but the last one train; then the last one comes, knowing no more than the addresses of
some peers. What must be seen: it fetches the current state from peers, is in by the second round that opens after it
has joined, and nobody is restarted.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim import mesh
from sim.faults import Join
from sim.settings import setting
from sim.stage import Attempt, Stage


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    rounds: int = setting(3, "committed rounds before the newcomer, and with it", least=1)


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.world(stage, settings)
    *old, new = mesh.names(settings.clusters)
    for name in old:
        mesh.cluster(stage, settings, name)
    mesh.cluster(stage, settings, new, at=None)
    mesh.gather(stage)
    stage.await_commits(settings.rounds, within=settings.rounds * settings.period)
    stage.snapshot("before")
    began = stage.fault(Join(new))
    joined = world.run_until(
        lambda: new in world.leaders() and world.believes_all(), within=60, what=f"everybody knows {new}"
    )
    stage.say(f"{new} is known to all")
    known = world.now
    stage.await_commits(settings.rounds, within=(settings.rounds + 2) * settings.period, having=tuple(world.clusters))
    mesh.settle(stage, within=settings.period)
    stage.snapshot("after")
    stage.within("everybody knows the new cluster", joined, 20.0)
    fetched = [entry for entry in world.trace.of("state_fetched", since=began) if entry.host.startswith(f"{new}/")]
    stage.check("it fetched the state from peers", fetched, seen=f"{len(fetched)} transfers", wanted="at least 1")
    first = _first_round_of(new, [a for a in stage.attempts.values() if a.opened > known])
    stage.check("it is in by its second round", first <= 2, seen=f"round {first} after it came", wanted="at most 2")
    mesh.check_counted(stage)
    mesh.check_lives(stage)


def _first_round_of(cluster: str, attempts: list[Attempt]) -> int:
    """The how-manieth of these rounds is the first in which the cluster takes part."""
    numbers = sorted({attempt.round for attempt in attempts})
    return next(n for n, number in enumerate(numbers, 1) if _takes_part(cluster, number, attempts))


def _takes_part(cluster: str, number: int, attempts: list[Attempt]) -> bool:
    return any(attempt.round == number and cluster in attempt.participants for attempt in attempts)
