"""A mesh that lives for weeks: `python -m sim.endurance 1 --days 30`.

Campaigns (`sim.campaign`) have many worlds, of a minute each. What shows only later they cannot find: groups that train
out of step, knowledge that grows, timers that run for hours, a mesh that has seen a hundred dead. So here one world
lives on. Every few hours comes a minute of chaos; what it has broken stays broken for seconds or for half a day, and
then all of it ends, whoever was lost is replaced, and the mesh must become whole within its bounds
(`invariants.recovery`). Invariants are looked at all along.

A seed gives one course. A day takes three minutes of a core.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sim.chance import Chance
from sim.chaos import KINDS, chaos
from sim.faults import Calm, ClockSkew, Join
from sim.invariants.finding import Breach
from sim.invariants.recovery import Recovery
from sim.world import World

CLUSTERS = {"a": 2, "b": 2, "c": 1, "d": 2}
"""Workers of each."""
HIDDEN = "d"
"""Which of them is behind NAT."""
PHASE = 300.0
"""Seconds of training between two rounds; a little more in some clusters."""
ELEMENTS = 1000
"""Of the state: each version is kept by whoever checks the sums."""
QUIET = 3 * 3600.0
"""Mean seconds between calm and chaos."""
BROKEN = (10.0, 6 * 3600.0)
"""For how long what chaos has broken stays so, at least and at most; as often a minute as an hour."""
SPARED = ("slow", "skew")
"""What calm does not end, and a cluster that trains four times as long is in few rounds of the others."""
DAY = 86400.0


@dataclass(slots=True)
class Course:
    """What has happened so far."""

    seed: int
    days: float = 0.0
    version: int = 0
    episodes: int = 0
    peers: int = 0
    """That there ever were."""
    longest: dict[str, float] = field(default_factory=dict)
    """Seconds from calm until each rule of recovery held, the most of all episodes."""
    breach: str = ""

    def __str__(self) -> str:
        longest = ", ".join(f"{rule} {seconds:.1f} s" for rule, seconds in self.longest.items())
        return (
            f"seed {self.seed}: {self.days:.2f} days, version {self.version}, {self.episodes} times of chaos, "
            f"{self.peers} peers; longest until whole: {longest or 'none'}"
        )


def endure(seed: int, days: float, told: Callable[[Course], None] = lambda course: None) -> Course:
    """Let a world live.

    Args:
        seed: of everything.
        days: virtual ones; the episode that is under way then comes to its end.
        told: called after each episode.
    """
    chance, course = Chance(seed), Course(seed)
    with World(seed, profile="wan", spare_quorum=True) as world:
        world.links(delay=0.04, bandwidth=4e6)
        for name, workers in CLUSTERS.items():
            compute = PHASE + 5.0 * chance.uniform("endurance", "compute")
            world.cluster(name, workers=workers, compute=compute, elements=ELEMENTS, nat=name == HIDDEN)
        try:
            while world.now < days * DAY:
                _episode(world, chance, course)
                told(course)
        except Breach as breach:
            course.breach = str(breach)
        course.days = world.now / DAY
    return course


def _episode(world: World, chance: Chance, course: Course) -> None:
    world.run_for(chance.exponential(QUIET, "endurance", "quiet"))
    seconds = 30.0 + 90.0 * chance.uniform("endurance", "seconds")
    every = 3.0 + 8.0 * chance.uniform("endurance", "every")
    hosts = [host.name for host in world.every_host() if not host.gone]
    kinds = [kind for kind in KINDS if kind not in SPARED]
    world.schedule(chaos(chance, [*CLUSTERS], hosts, seconds=seconds, every=every, kinds=kinds))
    least, most = BROKEN
    world.run_for(seconds + least * (most / least) ** chance.uniform("endurance", "broken"))
    _mend(world, chance, hosts)
    recovery = Recovery(world)
    recovery.run()
    for rule, took in recovery.seconds.items():
        course.longest[rule] = max(course.longest.get(rule, 0.0), took)
    course.episodes += 1
    course.days, course.version, course.peers = world.now / DAY, world.version(), len(world.hosts)


def _mend(world: World, chance: Chance, hosts: Sequence[str]) -> None:
    """End all faults, set somebody's clock, and let a worker come for each that has left."""
    world.inject(Calm())
    someone = hosts[math.floor(chance.uniform("endurance", "clock") * len(hosts))]
    world.inject(ClockSkew(someone, offset=100.0 * chance.uniform("endurance", "offset")))
    there = [host.cluster for host in world.every_host() if not host.gone]
    for name, workers in CLUSTERS.items():
        for _ in range(workers - there.count(name)):
            world.inject(Join(name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Let one world live for days; 0 if nothing broke."""
    parser = argparse.ArgumentParser(prog="python -m sim.endurance", description="Let one world live for days.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--days", type=float, default=1.0, help="virtual (default: %(default)g)")
    options = parser.parse_args(arguments)
    if not 0.0 < options.days < math.inf:
        parser.error(f"--days {options.days:g} is not a number above 0")
    began = time.process_time()

    def told(course: Course) -> None:
        sys.stdout.write(f"{course}; {time.process_time() - began:.0f} CPU s\n")
        sys.stdout.flush()

    course = endure(options.seed, options.days, told)
    if course.breach:
        sys.stdout.write(f"{course}\n{course.breach}\n")
    return int(bool(course.breach))


if __name__ == "__main__":
    sys.exit(main())
