"""What can be done to a world: processes die and stop, paths break and heal, clusters come and go.

These are the verbs; `sim.faults` has the same as values, which can be written down and told again. A number that cannot
be is a `ConfigError` at once, whichever way it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sim.building import Building
from sim.limits import CLOCK_RATE, DURATION, LASTING, NTH, OFFSET, SHARE, WORKERS, check
from sim.loop import Process
from sim.topology import Barrier, How


class Harm(Building):
    """Verbs, all of which act at this instant."""

    def crash(self, host: str, *, disk: str = "kept", power: bool = False) -> None:
        """Kill a host's process; with `power` the whole host goes dark. `disk` "lost" makes it another peer."""
        self.loop.perform(lambda: self.supervisor.crash(self.hosts[host], disk, power=power))

    def crash_on_save(self, host: str, nth: int = 1, *, written: bool = False, power: bool = False) -> None:
        """Kill a host's process at its n-th save from now, before the value is durable, or right after."""
        check("nth", nth, NTH)
        target = self.hosts[host]
        due = target.disk.saves + nth

        def die() -> None:
            if target.disk.saves + (0 if written else 1) >= due:
                target.disk.before = target.disk.after = None
                self.supervisor.crash(target, power=power)

        if written:
            target.disk.after = die
        else:
            target.disk.before = die

    def fill_disk(self, host: str, nth: int = 1) -> None:
        """Have a host's disk refuse its n-th save from now and all after it, until its process starts again."""
        check("nth", nth, NTH)
        disk = self.hosts[host].disk
        disk.full_at = disk.saves + nth

    def restart(self, host: str, *, power: bool = False) -> None:
        """Start a host's peer (again) on the disk that it has; with `power`, a running one ends without a word."""

        def act() -> None:
            target = self.hosts[host]
            if target.alive:
                self.supervisor.crash(target, power=power)
            if not (target.gone or target.alive):
                self.supervisor.boot(target)

        self.loop.perform(act)

    def pause(self, host: str) -> None:
        """Stop a process."""
        self.loop.perform(lambda: self._with_process(host, self.loop.pause))

    def resume(self, host: str) -> None:
        """Let a paused process go on."""
        self.loop.perform(lambda: self._with_process(host, self.loop.resume))

    def cut(self, a: str, b: str, *, one_way: bool = False, how: How = "blackhole") -> None:
        """Let nothing pass from `a` to `b` (hosts or clusters, "*" for all), nor back unless `one_way`."""
        barrier = Barrier(a, b, one_way, how)

        def act() -> None:
            self.topology.cut(barrier)
            if how == "reset":
                crossing = self.topology.blocked
                self.internet.reset_between(lambda x, y: crossing(x, y) is not None or crossing(y, x) is not None)
            self.internet.changed()

        self.loop.perform(act)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Take down what was cut between `a` and `b`, or everywhere."""

        def act() -> None:
            if a is None and b is None:
                self.topology.mend_all()
            else:
                self.topology.mend_between(a or "*", b or "*")
            self.internet.changed()

        self.loop.perform(act)

    def partition(self, side: Iterable[str], *, how: How = "blackhole") -> None:
        """Cut the named clusters (or hosts) off from all the others."""
        inside = list(side)
        for other in self.clusters:
            if other not in inside:
                for name in inside:
                    if name.split("/")[0] != other:
                        self.cut(name, other, how=how)
        for name in inside:
            if "/" in name:
                for host in self.hosts.values():
                    if host.cluster == name.split("/")[0] and host.name not in inside:
                        self.cut(name, host.name, how=how)

    def reset_connections(self, a: str, b: str) -> None:
        """Reset every connection between two clusters or hosts, once."""
        self.loop.perform(lambda: self.internet.reset_between(_between(a, b)))

    def forget_connections(self, a: str, b: str, *, share: float = 0.5, how: How = "blackhole") -> None:
        """Have nothing pass any more on this share of the connections between two clusters or hosts, or reset them."""
        check("share", share, SHARE)
        self.loop.perform(lambda: self.internet.forget_between(_between(a, b), share, told=how == "reset"))

    def skew(self, host: str, *, offset: float = 0.0, rate: float = 1.0) -> None:
        """Move a host's clock and change how fast it runs, now and in its next lives."""
        check("offset", offset, OFFSET)
        check("rate", rate, CLOCK_RATE)
        target = self.hosts[host]
        target.skew = (target.skew[0] + offset, rate)
        self.loop.perform(lambda: self._with_process(host, lambda process: process.set_clock(self.now, offset, rate)))

    def slow(self, host: str, *, cost: float = 0.0, factor: float = 1.0) -> None:
        """Make everything that a host does take `cost` seconds, and its inner phases `factor` times as long."""
        check("cost", cost, DURATION)
        check("factor", factor, LASTING)
        target = self.hosts[host]
        target.slowness = factor
        if target.process is not None:
            target.process.cost = cost

    def join(self, cluster: str, workers: int = 1) -> None:
        """Let a declared cluster join; if it runs already, one or more new workers of it."""
        check("workers", workers, WORKERS)

        def act() -> None:
            waiting = [h for h in self.of(cluster) if h.lives == 0]
            for host in waiting or [self.host(cluster, at=None) for _ in range(workers)]:
                self.supervisor.boot(host)

        self.loop.perform(act)

    def leave(self, name: str) -> None:
        """Let a host, or all hosts of a cluster, leave politely."""

        def act() -> None:
            for host in self.of(name) if name in self.clusters else [self.hosts[name]]:
                self.supervisor.leave(host)

        self.loop.perform(act)

    def calm(self) -> None:
        """End every fault: mend all links and paths, let all processes go on, start all that crashed.

        What changed for good stays: bandwidths, delays, clocks, who left, whose disk is lost.
        """

        def act() -> None:
            self.topology.mend_all()
            for link in self.topology.every_link():
                link.loss = link.corrupt = 0.0
                link.swallows = False
            for host in self.hosts.values():
                host.disk.before = host.disk.after = host.disk.full_at = None
                host.slowness = 1.0
                if host.process is not None:
                    host.process.cost = 0.0
                    self.loop.resume(host.process)
            self.supervisor.calm()
            self.internet.changed()

        self.trace.event("world", "calm")
        self.loop.perform(act)

    def _with_process(self, host: str, act: Callable[[Process], object]) -> None:
        process = self.hosts[host].process
        if process is not None:
            act(process)


def _between(a: str, b: str) -> Callable[[str, str], bool]:
    """Whether a connection leads from one of two clusters or hosts ("*": all) to the other."""

    def between(x: str, y: str) -> bool:
        one, two = {x, x.split("/")[0], "*"}, {y, y.split("/")[0], "*"}
        return (a in one and b in two) or (b in one and a in two)

    return between
