"""The leader of a cluster dies in the middle of an outer all-reduce.

Demonstration 1.1b. What must be seen: a new leader within seconds, the round is retried or closed without the dead
one, the next commit follows within 20 s plus the transfer, the cluster is back in the rounds after that, every worker
ends with the same bytes, and no work is lost or counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim import mesh
from sim.faults import KillLeader
from sim.settings import setting
from sim.stage import Stage

TO_LEADER, TO_COMMIT = 20.0, 20.0
"""Seconds to a new leader, and to the next commit beside the transfer."""


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    workers: int = setting(2, "workers of each cluster", least=2)
    rounds: int = setting(2, "committed rounds before the death, and with everybody after it", least=1)
    power: bool = setting(False, "whether the whole machine goes dark, so that nothing says goodbye for the process")
    when: float = setting(0.5, "share of the planned transfer time at which the leader dies", least=0, most=1)


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.built(stage, settings)
    stage.await_commits(settings.rounds, within=settings.rounds * settings.period)
    cluster = list(world.clusters)[1]
    stage.snapshot("before")
    begun = len(stage.attempts)
    world.run_until(lambda: len(stage.attempts) > begun, within=settings.period, what="the next round opens")
    attempt = list(stage.attempts.values())[-1]
    world.run_for(settings.when * (attempt.plan.seconds if attempt.plan is not None else 0.0))
    dead = world.leaders()[cluster]
    stage.say(f"{dead} leads {cluster} and is in round {attempt.round}")
    inside = cluster in attempt.participants and not any(a is attempt for a in stage.committed())
    stage.check("the leader dies in the middle of a round", inside and attempt.ended is None)
    died = stage.fault(KillLeader(cluster, power=settings.power))

    led = world.run_until(
        lambda: world.leaders().get(cluster, dead) != dead, within=120, what=f"{cluster} has another leader"
    )
    stage.say(f"{world.leaders()[cluster]} leads {cluster} now")
    if not stage.committed(died):
        world.run_until(lambda: stage.committed(died), within=120, what="a round commits")
    first = stage.committed(died)[0]
    stage.within("a new leader", led, TO_LEADER)
    allowed = TO_COMMIT + 2 * settings.transfer + (settings.compute if first.round > attempt.round else 0.0)
    stage.within("the next commit", (first.ended or 0.0) - died, allowed)
    stage.await_commits(
        settings.rounds, within=(settings.rounds + 2) * settings.period + 60, having=tuple(world.clusters)
    )
    mesh.settle(stage, within=settings.period)
    stage.snapshot("after")
    mesh.check_counted(stage)
    mesh.check_lives(stage)
