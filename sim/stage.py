"""Where a scenario plays: one world, what was noted about it while it ran, and what had to be seen.

The stage watches the world's trace and changes nothing in it: a scenario takes the same course whoever looks on.
Faults go through `fault`, so that they are in the plan that a failing run prints; a check that fails does not stop
the scenario, for what comes after it tells more; waiting in vain does (`sim.invariants.Breach`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from ictp2p.collectives import plan as plans
from ictp2p.sync.values import Open
from sim.faults import Fault
from sim.plan import FaultPlan, to_dict
from sim.trace import Entry
from sim.world import World

Told = Callable[["Stage", str], None]
"""Called with the stage and a line of text for people; an empty one only says that time has passed."""


DRAWN = 24
"""Clusters of a mesh whose links are kept in snapshots: with more, nobody could tell them apart."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must have been seen."""

    what: str
    ok: bool
    seen: str
    wanted: str


@dataclass(slots=True)
class Attempt:
    """One attempt at a round."""

    round: int
    attempt: int
    participants: tuple[str, ...]
    opened: float
    """When the first participant began, true seconds."""
    plan: plans.Plan | None
    reason: str
    ended: float | None = None
    version: int | None = None
    """What it made, if it committed."""
    aborted: str = ""

    @property
    def seconds(self) -> float:
        """From the first participant's beginning to the first one's knowing of the commit."""
        return (self.ended if self.ended is not None else float("nan")) - self.opened


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The mesh at one moment, as plain data for pictures."""

    label: str
    at: float
    clusters: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    routes: list[dict[str, Any]] = field(default_factory=list)


class Stage:
    """See the module's docstring.

    Args:
        seed: of the world.
        told: informed of milestones and of the passing of time.
    """

    def __init__(self, seed: int, told: Told | None = None) -> None:
        self.seed = seed
        self.checks: list[Check] = []
        self.notes: list[tuple[float, str]] = []
        self.snapshots: list[Snapshot] = []
        self.attempts: dict[tuple[int, int], Attempt] = {}
        self.breach: str | None = None
        """What broke, if something did."""
        self.seconds = 0.0
        """Real seconds that it took."""
        self.state_bytes = 0
        """Size of what is reduced: routes are shown for messages of this size."""
        self._told = told
        self._world: World | None = None

    # ------------------------------------------------------------ for scenarios

    def open(self, *, state_bytes: int = 0, **options: Any) -> World:
        """Make the world; see `World` for the options."""
        self.state_bytes = state_bytes
        self._world = world = World(self.seed, **options)
        world.trace.subscribers.append(self._watch)
        return world

    @property
    def world(self) -> World:
        """The world."""
        if self._world is None:
            raise LookupError("the scenario has opened no world")
        return self._world

    @property
    def opened(self) -> bool:
        """Whether there is a world."""
        return self._world is not None

    def say(self, text: str) -> None:
        """Note a milestone."""
        self.notes.append((self.world.now, text))
        if self._told is not None:
            self._told(self, text)

    def fault(self, fault: Fault) -> float:
        """Let a fault happen now; give the time."""
        self.world.inject(fault)
        return self.world.now

    def schedule(self, plan: FaultPlan) -> None:
        """Let a plan's faults happen, counted from now."""
        self.world.schedule(plan)

    def check(self, what: str, ok: object, *, seen: object = "", wanted: object = "") -> None:
        """Say what must have been seen, and whether it was."""
        self.checks.append(Check(what, bool(ok), str(seen), str(wanted)))
        if self._told is not None and not ok:
            self._told(self, f"NOT SEEN: {what} (seen {seen}, wanted {wanted})")

    def within(self, what: str, seconds: float, most: float) -> None:
        """Check that something took no longer than `most` seconds."""
        self.check(what, seconds <= most, seen=f"{seconds:.1f} s", wanted=f"at most {most:.1f} s")

    def snapshot(self, label: str) -> None:
        """Keep the mesh as it is now, for the picture."""
        world = self.world
        self.snapshots.append(
            Snapshot(label, world.now, _clusters(world), _links(world), _routes(world, self.state_bytes))
        )

    def committed(self, since: float = 0.0) -> list[Attempt]:
        """The rounds that committed after a time, oldest first."""
        self._close_attempts()
        found = [a for a in self.attempts.values() if a.version is not None and a.ended is not None and a.ended > since]
        return sorted(found, key=lambda attempt: attempt.version or 0)

    def await_commits(self, count: int, within: float, *, having: tuple[str, ...] = ()) -> float:
        """Wait for `count` more rounds, in which all of `having` take part; give the seconds it took."""
        began = self.world.now

        def enough() -> bool:
            return sum(set(having) <= set(a.participants) for a in self.committed(began)) >= count

        whose = f" with {', '.join(having)}" if having else ""
        return self.world.run_until(enough, within, what=f"{count} more committed rounds{whose}")

    # ------------------------------------------------------------ for reports

    @property
    def ok(self) -> bool:
        """Whether nothing broke and everything was seen that had to be."""
        return self.breach is None and bool(self.checks) and all(check.ok for check in self.checks)

    def close(self) -> None:
        """End the world."""
        if self._world is not None:
            self._world.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------ watching

    def _watch(self, entry: Entry) -> None:
        match entry.kind:
            case "round_opened":
                self._on_opened(entry)
            case "round_aborted":
                found = self.attempts.get((entry.fields["round"], entry.fields["attempt"]))
                if found is not None and found.version is None and not found.aborted:
                    found.ended, found.aborted = entry.at, entry.fields["reason"]
            case "fault":
                self.say(describe(entry.fields["fault"]))
        if self._told is not None:
            self._told(self, "")

    def _on_opened(self, entry: Entry) -> None:
        told = entry.fields
        key = (told["round"], told["attempt"])
        if key not in self.attempts:
            plan = self._plan(entry.host, *key)
            self.attempts[key] = Attempt(*key, tuple(told["participants"]), entry.at, plan, told["reason"])

    def _plan(self, host: str, number: int, attempt: int) -> plans.Plan | None:
        core = self.world.hosts[host].core
        tip = core.m.rounds.tip[1] if core is not None and core.m.rounds.tip is not None else None
        if isinstance(tip, Open) and (tip.round, tip.attempt) == (number, attempt):
            return plans.decode(tip.plan)
        return None

    def _close_attempts(self) -> None:
        """What committed, and when, the ledger knows: it sees all."""
        for commit in self.world.commits():
            found = self.attempts.get((commit.round, commit.attempt))
            if found is not None:
                found.ended, found.version, found.aborted = commit.at, commit.version, ""


def describe(fault: Fault) -> str:
    """A fault in words, as a scenario file has it."""
    told = to_dict(fault)
    name = told.pop("fault")
    words = (f"{key}={','.join(value) if isinstance(value, list) else value}" for key, value in told.items())
    return " ".join([name, *words])


def _clusters(world: World) -> list[dict[str, Any]]:
    leaders = world.leaders()
    rows = []
    for name, declared in world.clusters.items():
        hosts = world.of(name)
        up = [host for host in hosts if host.alive and not host.gone]
        state = (
            "up"
            if up
            else "left"
            if any(h.gone for h in hosts)
            else "down"
            if any(h.lives for h in hosts)
            else "to come"
        )
        site = world.topology.sites[name]
        rows.append({
            "cluster": name, "state": state, "workers": len(up), "leader": leaders.get(name, ""), "nat": declared.nat,
            "up": _finite(site.up), "down": _finite(site.down),
        })  # fmt: skip
    return rows


def _links(world: World) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if len(world.clusters) > DRAWN:
        return rows
    for a in world.clusters:
        for b in world.clusters:
            if a != b:
                link = world.topology.link(a, b)
                rows.append({
                    "from": a, "to": b, "delay": link.delay, "bandwidth": _finite(link.bandwidth), "loss": link.loss,
                    "cut": _cut(world, a, b),
                })  # fmt: skip
    return rows


def _cut(world: World, a: str, b: str) -> bool:
    """Whether no host of `a` reaches any host of `b`."""
    pairs = [(x.name, y.name) for x in world.of(a) for y in world.of(b)]
    return bool(pairs) and all(world.topology.blocked(*pair) for pair in pairs)


def _routes(world: World, size: int) -> list[dict[str, Any]]:
    rows = []
    for source, leader in sorted(world.leaders().items()):
        core = world.hosts[leader].core
        for target in world.clusters:
            route = core.m.routes.best(target, size) if core is not None and target != source else None
            if route is not None:
                rows.append({"from": source, "to": target, "next_hop": route.next_hop, "class": route.traffic_class})
    return rows


def _finite(value: float) -> float | None:
    return value if value != float("inf") else None
