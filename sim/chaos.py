"""Fault plans drawn at random, for campaigns over many seeds.

Each step is drawn by `Chance`, so a plan is a function of its seed and of the names in the world. The mix leans on
what has broken other systems: leaders that die at the worst time, one-way and flapping paths, processes that stop
and come back, disks that are lost, and crashes in the middle of a write (see the TigerBeetle and FoundationDB notes
on what their simulators found).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.chance import Chance
from sim.faults import (
    ClockSkew,
    Corrupt,
    Crash,
    CrashOnSave,
    Cut,
    DiskFull,
    Fault,
    ForgetConnections,
    Heal,
    Join,
    KillLeader,
    Leave,
    LinkFlap,
    Loss,
    Partition,
    Pause,
    ResetConnections,
    Restart,
    Resume,
    SetBandwidth,
    SetDelay,
    SlowNode,
    Swallow,
    SwizzleClog,
)
from sim.plan import FaultPlan
from sim.topology import How

Draw = Callable[["_Dice"], Fault]


class _Dice:
    def __init__(self, chance: Chance, clusters: Sequence[str], hosts: Sequence[str]) -> None:
        self._chance = chance
        self._clusters = clusters
        self._hosts = hosts

    def one(self, of: Sequence[str]) -> str:
        return of[int(self._chance.uniform("chaos", "pick") * len(of))]

    def host(self) -> str:
        return self.one(self._hosts)

    def cluster(self) -> str:
        return self.one(self._clusters)

    def pair(self) -> tuple[str, str]:
        a = self.cluster()
        others = [c for c in self._clusters if c != a]
        return a, self.one(others) if others else "*"

    def between(self, low: float, high: float) -> float:
        return round(low + (high - low) * self._chance.uniform("chaos", "number"), 3)

    def happens(self, probability: float) -> bool:
        return self._chance.uniform("chaos", "coin") < probability

    def how(self) -> How:
        return "reset" if self.happens(0.3) else "blackhole"

    def some_clusters(self) -> tuple[str, ...]:
        return tuple(c for c in self._clusters if self.happens(0.5)) or (self.cluster(),)

    def some_hosts(self) -> tuple[str, ...]:
        return tuple(h for h in self._hosts if self.happens(0.4)) or (self.host(),)


KINDS: dict[str, tuple[float, Draw]] = {
    "crash": (3, lambda d: Crash(d.host(), power=d.happens(0.3))),
    "lose": (0.4, lambda d: Crash(d.host(), disk="lost")),
    "crash_on_save": (2, lambda d: CrashOnSave(d.host(), 1 + int(d.between(0, 4)), written=d.happens(0.5))),
    "kill_leader": (3, lambda d: KillLeader(d.cluster(), power=d.happens(0.3))),
    "restart": (7, lambda d: Restart(d.host(), power=d.happens(0.3))),
    "pause": (2, lambda d: Pause(d.host())),
    "resume": (4, lambda d: Resume(d.host())),
    "cut": (3, lambda d: Cut(*d.pair(), one_way=d.happens(0.4), how=d.how())),
    "isolate": (1, lambda d: Cut(d.host(), "*", one_way=d.happens(0.3), how=d.how())),
    "partition": (1.5, lambda d: Partition(d.some_clusters(), how=d.how())),
    "heal": (6, lambda d: Heal()),
    "reset": (1.5, lambda d: ResetConnections(*d.pair())),
    "forget": (1.5, lambda d: ForgetConnections(*d.pair(), share=d.between(0.1, 0.9), how=d.how())),
    "flap": (1, lambda d: LinkFlap(*d.pair(), times=3, down=d.between(0.2, 3), up=d.between(0.2, 3), how=d.how())),
    "swizzle": (0.7, lambda d: SwizzleClog(d.some_hosts(), step=d.between(0.1, 1), hold=d.between(0.5, 4))),
    "bandwidth": (1, lambda d: SetBandwidth(*d.pair(), bandwidth=d.between(1e5, 1e8))),
    "delay": (1, lambda d: SetDelay(*d.pair(), delay=d.between(0.001, 0.2), jitter=d.between(0, 0.05))),
    "loss": (1, lambda d: Loss(*d.pair(), probability=d.between(0, 0.1))),
    "corrupt": (0.7, lambda d: Corrupt(*d.pair(), probability=d.between(0, 0.02))),
    "swallow": (0.7, lambda d: Swallow(*d.pair(), one_way=d.happens(0.4))),
    "skew": (1, lambda d: ClockSkew(d.host(), offset=d.between(0, 100), rate=d.between(0.9, 1.1))),
    "slow": (1, lambda d: SlowNode(d.host(), cost=d.between(0, 0.01), factor=d.between(1, 4))),
    "join": (0.3, lambda d: Join(d.cluster())),
    "leave": (0.2, lambda d: Leave(d.host())),
    "disk_full": (0.5, lambda d: DiskFull(d.host(), 1 + int(d.between(0, 4)))),
}
"""Weight and recipe of each kind."""


def chaos(
    chance: Chance,
    clusters: Sequence[str],
    hosts: Sequence[str],
    *,
    seconds: float,
    every: float = 1.0,
    kinds: Sequence[str] = tuple(KINDS),
) -> FaultPlan:
    """Draw a plan.

    Args:
        chance: draws.
        clusters: names to choose from.
        hosts: names to choose from.
        seconds: length of the plan.
        every: mean seconds between two faults.
        kinds: which of `KINDS` to use.
    """
    dice = _Dice(chance, clusters, hosts)
    total = sum(KINDS[kind][0] for kind in kinds)
    steps: list[tuple[float, Fault]] = []
    at = chance.exponential(every, "chaos", "pause")
    while at < seconds:
        point = chance.uniform("chaos", "kind") * total
        for kind in kinds:
            weight, draw = KINDS[kind]
            point -= weight
            if point < 0:
                steps.append((round(at, 3), draw(dice)))
                break
        at += chance.exponential(every, "chaos", "pause")
    return FaultPlan.of(steps)
