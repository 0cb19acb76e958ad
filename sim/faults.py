"""Faults as values: what goes wrong, told to a world at a time, and written down so that it can be told again.

Every fault is a frozen value with an `apply(world)`; `sim.plan` writes them down and reads them again. Hosts are
named "cluster/number" ("a/0"), clusters by their name; "*" in a barrier is everybody.
"""

from __future__ import annotations

import abc
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from ictp2p.errors import ConfigError
from sim.limits import CLOCK_RATE, DURATION, LASTING, NTH, OFFSET, RATE, SHARE, TIMES, WORKERS, Limits, as_float
from sim.topology import How

if TYPE_CHECKING:
    from sim.world import World

DiskFate = Literal["kept", "lost"]


def within(limits: Limits, **default: Any) -> Any:
    """Declare a number of a fault, with what it may be."""
    return field(metadata={"limits": limits}, **default)


@dataclass(frozen=True, slots=True)
class Fault(abc.ABC):
    """Base: something that happens to a world.

    Raises:
        ConfigError: a field has a value that cannot be, whoever made it; the message names both.
    """

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for item in fields(self):
            value = getattr(self, item.name)
            cleaned, why = _cleaned(value, hints[item.name], item.metadata.get("limits"))
            if why:
                raise ConfigError(f"{type(self).__name__}.{item.name} = {value!r} {why}")
            object.__setattr__(self, item.name, cleaned)

    @abc.abstractmethod
    def apply(self, world: World) -> None:
        """Let it happen."""


@dataclass(frozen=True, slots=True)
class Crash(Fault):
    """A process is killed. Its host's kernel closes its connections, unless the whole host lost its power."""

    host: str
    disk: DiskFate = "kept"
    power: bool = False

    def apply(self, world: World) -> None:
        world.crash(self.host, disk=self.disk, power=self.power)


@dataclass(frozen=True, slots=True)
class CrashOnSave(Fault):
    """A process is killed at its n-th next write to disk, before or after the value is durable."""

    host: str
    nth: int = within(NTH, default=1)
    written: bool = False
    power: bool = False

    def apply(self, world: World) -> None:
        world.crash_on_save(self.host, self.nth, written=self.written, power=self.power)


@dataclass(frozen=True, slots=True)
class DiskFull(Fault):
    """A host's disk refuses its n-th next write and all after it, until its process starts again."""

    host: str
    nth: int = within(NTH, default=1)

    def apply(self, world: World) -> None:
        world.fill_disk(self.host, self.nth)


@dataclass(frozen=True, slots=True)
class Restart(Fault):
    """A crashed host starts again, with the disk that it has. One that runs is killed first (`power`: it reboots)."""

    host: str
    power: bool = False

    def apply(self, world: World) -> None:
        world.restart(self.host, power=self.power)


@dataclass(frozen=True, slots=True)
class Pause(Fault):
    """A process stops, and its kernel goes on acknowledging for it (SIGSTOP, a suspended machine)."""

    host: str

    def apply(self, world: World) -> None:
        world.pause(self.host)


@dataclass(frozen=True, slots=True)
class Resume(Fault):
    """A paused process goes on."""

    host: str

    def apply(self, world: World) -> None:
        world.resume(self.host)


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """Nothing passes from `a` to `b` (hosts, clusters, or "*"); nor back, unless `one_way`.

    What passes the other way on a connection that stands is little: TCP gets no acknowledgments.
    """

    a: str
    b: str
    one_way: bool = False
    how: How = "blackhole"

    def apply(self, world: World) -> None:
        world.cut(self.a, self.b, one_way=self.one_way, how=self.how)


@dataclass(frozen=True, slots=True)
class Partition(Fault):
    """The named clusters (and hosts) see only each other, and the rest only the rest."""

    side: tuple[str, ...]
    how: How = "blackhole"

    def apply(self, world: World) -> None:
        world.partition(self.side, how=self.how)


@dataclass(frozen=True, slots=True)
class Heal(Fault):
    """Whatever was cut between `a` and `b` is whole again; all cuts in the world if neither is named."""

    a: str = ""
    b: str = ""

    def apply(self, world: World) -> None:
        world.heal(self.a or None, self.b or None)


@dataclass(frozen=True, slots=True)
class SetBandwidth(Fault):
    """A link's bandwidth changes, bytes per second; an access link's if `b` is "up" or "down"."""

    a: str
    b: str
    bandwidth: float = within(RATE)
    one_way: bool = False

    def apply(self, world: World) -> None:
        if self.b in ("up", "down"):
            world.access(self.a, **{self.b: self.bandwidth})
        else:
            world.link(self.a, self.b, bandwidth=self.bandwidth, one_way=self.one_way)


@dataclass(frozen=True, slots=True)
class SetDelay(Fault):
    """A link's delay and jitter change, seconds."""

    a: str
    b: str
    delay: float = within(DURATION)
    jitter: float = within(DURATION, default=0.0)
    one_way: bool = False

    def apply(self, world: World) -> None:
        world.link(self.a, self.b, delay=self.delay, jitter=self.jitter, one_way=self.one_way)


@dataclass(frozen=True, slots=True)
class Loss(Fault):
    """A link loses this share of its segments: TCP repeats them, later and later."""

    a: str
    b: str
    probability: float = within(SHARE)
    one_way: bool = False

    def apply(self, world: World) -> None:
        world.link(self.a, self.b, loss=self.probability, one_way=self.one_way)


@dataclass(frozen=True, slots=True)
class Corrupt(Fault):
    """A link flips a bit in this share of the messages."""

    a: str
    b: str
    probability: float = within(SHARE)
    one_way: bool = False

    def apply(self, world: World) -> None:
        world.link(self.a, self.b, corrupt=self.probability, one_way=self.one_way)


@dataclass(frozen=True, slots=True)
class Swallow(Fault):
    """Packets that are larger than some hop of a link carries get lost without a word (RFC 2923); small ones pass."""

    a: str
    b: str
    one_way: bool = False

    def apply(self, world: World) -> None:
        world.link(self.a, self.b, swallows=True, one_way=self.one_way)


@dataclass(frozen=True, slots=True)
class ResetConnections(Fault):
    """Every connection between `a` and `b` is reset once; new ones can be made (a firewall restarts)."""

    a: str
    b: str

    def apply(self, world: World) -> None:
        world.reset_connections(self.a, self.b)


@dataclass(frozen=True, slots=True)
class ForgetConnections(Fault):
    """Nothing passes any more on this share of the connections between `a` and `b`; others and new ones work.

    So does a middlebox whose table overflows, or one of several paths over which connections are spread by hash.
    """

    a: str
    b: str
    share: float = within(SHARE, default=0.5)
    how: How = "blackhole"

    def apply(self, world: World) -> None:
        world.forget_connections(self.a, self.b, share=self.share, how=self.how)


@dataclass(frozen=True, slots=True)
class ClockSkew(Fault):
    """A host's clock jumps ahead by `offset` seconds and runs at `rate` from now on."""

    host: str
    offset: float = within(OFFSET, default=0.0)
    rate: float = within(CLOCK_RATE, default=1.0)

    def apply(self, world: World) -> None:
        world.skew(self.host, offset=self.offset, rate=self.rate)


@dataclass(frozen=True, slots=True)
class SlowNode(Fault):
    """Everything that a host does takes `cost` seconds, and its inner phases `factor` times as long."""

    host: str
    cost: float = within(DURATION, default=0.0)
    factor: float = within(LASTING, default=1.0)

    def apply(self, world: World) -> None:
        world.slow(self.host, cost=self.cost, factor=self.factor)


@dataclass(frozen=True, slots=True)
class Join(Fault):
    """A cluster that was declared, or one more worker of one that runs, joins."""

    cluster: str
    workers: int = within(WORKERS, default=1)

    def apply(self, world: World) -> None:
        world.join(self.cluster, workers=self.workers)


@dataclass(frozen=True, slots=True)
class Leave(Fault):
    """A host, or every host of a cluster, leaves politely."""

    name: str

    def apply(self, world: World) -> None:
        world.leave(self.name)


@dataclass(frozen=True, slots=True)
class KillLeader(Fault):
    """Whoever leads the cluster at that moment is killed."""

    cluster: str
    disk: DiskFate = "kept"
    power: bool = False

    def apply(self, world: World) -> None:
        leader = world.leaders().get(self.cluster)
        if leader is not None:
            world.crash(leader, disk=self.disk, power=self.power)


@dataclass(frozen=True, slots=True)
class LinkFlap(Fault):
    """The path between `a` and `b` breaks and heals, `times` times, `down` seconds dark and `up` seconds bright."""

    a: str
    b: str
    times: int = within(TIMES, default=3)
    down: float = within(DURATION, default=1.0)
    up: float = within(DURATION, default=1.0)
    how: How = "blackhole"

    def apply(self, world: World) -> None:
        period = self.down + self.up
        for n in range(self.times):
            world.then(n * period, Cut(self.a, self.b, how=self.how))
            world.then(n * period + self.down, Heal(self.a, self.b))


@dataclass(frozen=True, slots=True)
class SwizzleClog(Fault):
    """Hosts are cut off one by one, and let back in another order (after FoundationDB's simulator)."""

    hosts: tuple[str, ...]
    step: float = within(DURATION, default=0.5)
    hold: float = within(DURATION, default=2.0)

    def apply(self, world: World) -> None:
        back = sorted(self.hosts, key=lambda host: world.chance.uniform("swizzle", host))
        for n, host in enumerate(self.hosts):
            world.then(n * self.step, Cut(host, "*"))
        end = len(self.hosts) * self.step + self.hold
        for n, host in enumerate(back):
            world.then(end + n * self.step, Heal(host, "*"))


@dataclass(frozen=True, slots=True)
class Calm(Fault):
    """What can be mended is: links, paths and disks; processes go on, who crashed is started again."""

    def apply(self, world: World) -> None:
        world.calm()


@functools.cache
def _hints(kind: type[Fault]) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _cleaned(value: Any, hint: Any, limits: Limits | None) -> tuple[Any, str]:
    """The value in its declared type, or why it cannot be: an int may stand for a float, a list for a tuple."""
    if typing.get_origin(hint) is Literal:
        names = typing.get_args(hint)
        return value, "" if value in names else f"must be one of {', '.join(names)}"
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)) or not value or not all(isinstance(name, str) for name in value):
            return value, "must be a list of names, one at least"
        return tuple(value), ""
    if hint is float and type(value) in (int, float):
        value = as_float(value)
    if type(value) is not hint:
        return value, f"must be {_WORDS[hint]}"
    return value, limits.objection(value) if limits is not None else ""


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}

FAULTS: Mapping[str, type[Fault]] = {
    kind.__name__: kind
    for kind in (
        Crash, CrashOnSave, DiskFull, Restart, Pause, Resume, Cut, Partition, Heal, SetBandwidth, SetDelay, Loss,
        Corrupt, Swallow, ResetConnections, ForgetConnections, ClockSkew, SlowNode, Join, Leave, KillLeader, LinkFlap,
        SwizzleClog, Calm,
    )
}  # fmt: skip
"""Every fault by name."""

__all__ = ["FAULTS", "Fault", *FAULTS]
