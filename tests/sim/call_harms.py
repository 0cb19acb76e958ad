"""What happens to workers that call, drawn at random or written down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sim import World
from sim.host import Host
from sim.topology import How

Life: TypeAlias = tuple[str, int]
"""A worker's name, and which of its lives."""


@dataclass(frozen=True)
class Harm:
    """Something happens to a worker, to it and a mate, to all of its cluster, or to all but it."""

    after: float
    kind: str
    whom: int
    seconds: float


@dataclass
class Harmed:
    """A world, what is done to it, and who has made all of its calls."""

    world: World
    names: Sequence[str]
    """Of the workers, by whom a harm is for."""
    done: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    """Who makes no further call, and leaves politely."""
    slept: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that each was stopped for."""

    def harm(self, harm: Harm) -> None:
        host = self.world.hosts[self.names[harm.whom % len(self.names)]]
        self.world.run_for(harm.after)
        everybody = self.world.every_host()
        mates = sorted((h for h in everybody if h.cluster == host.cluster), key=lambda mate: mate is not host)
        match harm.kind:
            case "crash":
                self.crash([host])
            case "restart":
                self.crash([host], harm.seconds / 10)
            case "down":
                self.crash(mates, harm.seconds)
            case "two":
                self.crash(mates[:2])
            case "voters":
                self.crash([other for other in everybody if other is not host], harm.seconds)
            case "leave":
                self.leaving.add(host.name)
            case "sleep" if host.alive:
                self.sleep(host, harm.seconds)
            case "cut" if len({name[0] for name in self.names}) > 2:
                self.cut(host, harm.seconds)
            case "reset" | "forget":
                for other in sorted({name[0] for name in self.names} - {host.cluster}):
                    how: How = "reset" if harm.kind == "reset" else "blackhole"
                    self.world.forget_connections(host.cluster, other, how=how)

    def crash(self, hosts: Sequence[Host], again: float | None = None) -> None:
        """Kill them, and start them again after so many seconds, if any."""
        killed = [host for host in hosts if host.alive]
        for host in killed:
            self.world.crash(host.name)
        if again is not None:
            self.world.run_for(again)
            for host in killed:
                self.restart(host)

    def sleep(self, host: Host, seconds: float) -> None:
        self.slept[host.name] += seconds
        self.world.pause(host.name)
        self.world.at(seconds, lambda: self.world.resume(host.name))

    def cut(self, host: Host, seconds: float) -> None:
        self.world.partition([host.cluster])
        self.world.run_for(seconds)
        self.world.heal()

    def restart(self, host: Host) -> None:
        """Start a worker that is down again, unless it has left, or is to come later."""
        if not host.alive and not host.gone and host.lives:
            self.done.discard(host.name)
            self.world.restart(host.name)

    def end(self, bound: float) -> None:
        """Start all who are down, and wait until everybody has made its calls."""
        for host in self.world.every_host():
            self.restart(host)
        self.world.run_until(lambda: len(self.done) == len(self.names), bound, step=1.0, what="all calls have ended")
