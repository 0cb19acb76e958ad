"""The bandwidth of a link between two clusters drops to a tenth.

Demonstration 1.3. Every pair of clusters has a link of its own, and the access links are no bottleneck. What must be
seen: the round that was under way is begun anew with another plan, and is over sooner than the old plan would have let
it; the round after two more has another all-reduce plan, which spares the slow link, from then on no round takes
much longer than planned, and the training goes on with everybody in it.

One more check says how far rounds and plan are from the bound that no algorithm can beat on the links as they were
measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim import mesh
from sim.faults import SetBandwidth
from sim.settings import setting
from sim.stage import Attempt, Stage

HEADER = 1.5
"""Times what was planned that a round may take, and `START` seconds: agreement and slow start are not planned."""
LEAST_DETOUR = 25.0
"""Seconds that a round by the old plan would take below which there may be no time to find out."""
START = 4.0


@dataclass(frozen=True, slots=True)
class Settings(mesh.Mesh):
    """What can be set."""

    clusters: int = setting(4, "how many clusters", least=3)
    megabytes: float = setting(
        96.0, f"size of the state; above {mesh.REAL:g} only sizes travel, not numbers", least=0.0001, most=4e6
    )
    bandwidth: float = setting(16e6, "bytes/s of each link before the change", above=0)
    factor: float = setting(0.1, "what it is multiplied with on one link", above=0)
    rounds: int = setting(6, "committed rounds before and after the change", least=4)
    adapt: int = setting(2, "rounds after which there must be another plan", least=1)
    bound: float = setting(2.0, "how many times the certified bound a round by the new plan may take", least=1)


def play(stage: Stage, settings: Settings) -> None:
    """Let it happen."""
    world = mesh.world(stage, settings)
    world.links(delay=settings.delay, bandwidth=settings.bandwidth)
    for name in mesh.names(settings.clusters):
        mesh.cluster(stage, settings, name, up=float("inf"), down=float("inf"))
    mesh.gather(stage)
    slowest = settings.period + 4 * settings.megabytes * 1e6 / settings.bandwidth
    stage.await_commits(settings.rounds, within=settings.rounds * slowest)
    stage.snapshot("before")
    a, b = list(world.clusters)[:2]
    changed = stage.fault(SetBandwidth(a, b, settings.bandwidth * settings.factor))
    stage.await_commits(
        settings.rounds, within=settings.rounds * (slowest + settings.megabytes * 1e6 / settings.bandwidth * 8)
    )
    mesh.settle(stage, within=slowest)
    stage.snapshot("after")

    last = [x for x in stage.committed() if x.opened <= changed][-1]
    after = [x for x in stage.committed(changed) if x.opened > changed]
    most = _loads(last, a, b) / 2
    number = next((n for n, x in enumerate(after, 1) if _loads(x, a, b) < most), 99)
    shown = f"round {number} after the change" if number < 99 else f"not in {len(after)} rounds"
    wanted = f"round {settings.adapt + 1} at the latest"
    stage.check("a new plan spares the slow link", number <= settings.adapt + 1, seen=shown, wanted=wanted)
    under_way = [x for x in stage.attempts.values() if x.round == after[0].round]
    took, stuck = sum(x.seconds for x in under_way), last.seconds / settings.factor
    shown = f"{took:.1f} s, {len(under_way)} attempts"
    spared = took <= stuck * 2 / 3 or stuck < LEAST_DETOUR
    stage.check(
        "the round under way changes its plan", spared, seen=shown, wanted=f"at most two thirds of {stuck:.3g} s"
    )
    settled = after[settings.adapt :] or after[-1:]
    planned = max(x.plan.seconds for x in settled if x.plan is not None)
    stage.within("a round by the new plan", max(x.seconds for x in settled), HEADER * planned + START)
    ratio = max(x.seconds / x.plan.bound for x in settled if x.plan is not None)
    share = max(x.plan.seconds / x.plan.bound for x in settled if x.plan is not None)
    shown = f"{ratio:.2f} times (planned {share:.2f})"
    stage.check("a round is near the bound", ratio <= settings.bound, seen=shown, wanted=f"at most {settings.bound}")
    alone = [x.round for x in stage.committed(changed) if len(x.participants) < settings.clusters]
    stage.check("no round went on without a cluster", not alone, seen=" ".join(map(str, alone)) or "none")
    mesh.check_counted(stage)
    mesh.check_lives(stage)


def _loads(attempt: Attempt, a: str, b: str) -> float:
    """Elements that a plan sends over the link between two clusters, both ways; infinite if one of them is not in."""
    if attempt.plan is None or not {a, b} <= set(attempt.participants):
        return math.inf
    pair = {attempt.participants.index(a), attempt.participants.index(b)}
    total = 0
    for share in attempt.plan.shares:
        for parents in (share.reduce_parents, share.broadcast_parents):
            edges = sum({child, parent} == pair for child, parent in enumerate(parents))
            total += edges * (share.stop - share.start)
    return total
