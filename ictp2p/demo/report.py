"""What happened in a run, folded from the workers' events, and whether it was right.

`Record` is a pure fold: events in, in any order of workers; the JSON report and the verdict out. It believes only
what workers said: a round counts as committed because its participants reported it, and each worker computes its
digests itself, after every version, from its own copy of the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ictp2p.demo.lines import Event

CLEARLY_BELOW = 0.8
"""The final validation loss must be under this share of the first; a uniform guess costs 5.55 nats per byte."""

_COSTS = {"join": "its first round", "drain": "the first round without it"}
"""What the seconds of a deed are counted to, where that is not the next committed round: who drains is in that one."""


def cost(event: Mapping[str, Any], digits: int) -> str:
    """What a deed of the script cost, in words."""
    return f"{event['recovery_seconds']:.{digits}f} s to {_COSTS.get(event['kind'], 'the next round')}"


@dataclass(slots=True)
class Round:
    """One attempt at one outer all-reduce, as its participants reported it."""

    round: int
    attempt: int
    participants: tuple[str, ...] = ()
    """Clusters, sorted."""
    outcome: str = "open"
    """`open`, `committed` or `aborted`."""
    seconds: float = 0.0
    """From opening to decision, at the slowest participant."""
    bytes: int = 0
    """Tensor bytes sent, all participants together."""
    plan: str = ""
    reason: str = ""
    version: int | None = None
    """Of the state that it produced."""
    time: float = 0.0
    """When it was first heard to be decided, seconds since the epoch."""
    _reporters: set[str] = field(default_factory=set)

    def decided(self, worker: str, event: Event, outcome: str) -> bool:
        """Take one participant's report; whether it is the first."""
        first = not self._reporters
        if worker in self._reporters:
            return False
        self._reporters.add(worker)
        self.outcome = outcome
        self.time = event["time"] if first else min(self.time, event["time"])
        self.participants = clusters(event) or self.participants
        self.seconds = max(self.seconds, float(event.get("seconds") or 0.0))
        self.bytes += int(event.get("bytes_sent") or 0)
        self.plan = str(event.get("plan") or self.plan)
        self.reason = str(event.get("reason") or self.reason)
        self.version = event.get("version", self.version)
        return first

    def as_json(self) -> dict[str, Any]:
        """The report's row."""
        names = ("round", "attempt", "participants", "outcome", "seconds", "bytes", "plan", "reason", "version", "time")
        return {name: getattr(self, name) for name in names}


def clusters(event: Event) -> tuple[str, ...]:
    """The clusters that take part in a round, sorted."""
    return tuple(sorted(str(name) for name in event.get("participants") or ()))


class Record:
    """Everything heard in one run."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        """Seconds since the epoch."""
        self.rounds: dict[tuple[int, int], Round] = {}
        self.events: list[dict[str, Any]] = []
        """The script's own deeds: kill, join, drain, with what they cost."""
        self.losses: list[dict[str, Any]] = []
        self.validation: list[dict[str, Any]] = []
        self.digests: dict[int, dict[str, str]] = {}
        """Version to worker to digest."""
        self.leaders: dict[str, tuple[int, str]] = {}
        """Cluster to (term, peer id)."""
        self.elections: list[tuple[float, str, str]] = []
        """(time, cluster, peer id) of each change of `leaders`, when first heard."""
        self.versions: dict[str, int] = {}
        """Worker to the version it is at."""
        self.finals: dict[str, Event] = {}
        """Worker to what it said when it stopped."""
        self.suspicions: list[dict[str, Any]] = []

    def observe(self, worker: str, cluster: str, event: Event) -> None:
        """Fold one event in; kinds that the report has no use for pass by."""
        match event["kind"]:
            case "round_opened":
                opened = self._round(event)
                opened.participants = opened.participants or clusters(event)
                opened.plan = opened.plan or str(event.get("plan") or "")
                opened.reason = opened.reason or str(event.get("reason") or "")
            case "round_committed" | "round_aborted":
                self._round(event).decided(worker, event, event["kind"].removeprefix("round_"))
            case "step":
                self.losses.append({"worker": worker, "cluster": cluster, **_without_kind(event)})
            case "validation":
                self.validation.append({"worker": worker, **_without_kind(event)})
            case "version":
                self.versions[worker] = event["version"]
                self.digests.setdefault(event["version"], {})[worker] = event["digest"]
            case "leader":
                self._lead(event["cluster"], (int(event["term"]), str(event["leader"])), event["time"])
            case "member" if str(event["status"]).lower() == "suspect":
                self.suspicions.append({"worker": worker, **_without_kind(event)})
            case "stopped":
                self.finals[worker] = event

    @property
    def committed(self) -> list[Round]:
        """Committed rounds in the order of their decision."""
        return sorted((r for r in self.rounds.values() if r.outcome == "committed"), key=lambda r: r.time)

    @property
    def version(self) -> int:
        """The newest version that any worker has reached."""
        return max(self.versions.values(), default=0)

    def failures(self, expected: set[str]) -> list[str]:
        """Why the run was not right, each in a sentence; empty if it was."""
        return [
            *(f"worker {name} reported no final digest" for name in sorted(expected - self.finals.keys())),
            *self._differing_digests(),
            *self._loss_not_below(),
        ]

    def as_json(self) -> dict[str, Any]:
        """The report, but for what only the controller knows."""
        start, final = self._losses()
        return {
            "rounds": [r.as_json() for r in sorted(self.rounds.values(), key=lambda r: (r.round, r.attempt))],
            "events": self.events,
            "final_digests": {name: self.finals[name]["digest"] for name in sorted(self.finals)},
            "final_versions": {name: self.finals[name]["version"] for name in sorted(self.finals)},
            "start_validation_loss": start,
            "final_validation_loss": final,
            "losses": self.losses,
            "validation": self.validation,
            "digests": self.digests,
            "elections": [{"time": time, "cluster": c, "leader": leader} for time, c, leader in self.elections],
            "stats": {name: self.finals[name].get("stats") for name in sorted(self.finals)},
        }

    def _lead(self, cluster: str, office: tuple[int, str], time: float) -> None:
        if office > self.leaders.get(cluster, (-1, "")):
            self.leaders[cluster] = office
            self.elections.append((time, cluster, office[1]))

    def _round(self, event: Event) -> Round:
        key = int(event["round"]), int(event["attempt"])
        return self.rounds.setdefault(key, Round(*key))

    def _differing_digests(self) -> list[str]:
        found = [
            f"version {version} has {len(set(by_worker.values()))} digests: {_grouped(by_worker)}"
            for version, by_worker in sorted(self.digests.items())
            if len(set(by_worker.values())) > 1
        ]
        final = {name: f"{event['digest']} at version {event['version']}" for name, event in self.finals.items()}
        if len(set(final.values())) > 1:
            found.append(f"final digests differ: {_grouped(final)}")
        return found

    def _loss_not_below(self) -> list[str]:
        start, final = self._losses()
        if start is None or final is None:
            return ["the validation loss was not measured"]
        if not final < CLEARLY_BELOW * start:
            return [f"validation loss went from {start:.3f} to {final:.3f}, not below {CLEARLY_BELOW} of its start"]
        return []

    def _losses(self) -> tuple[float | None, float | None]:
        start = min(self.validation, key=lambda v: float(v["time"]), default=None)
        finals = [float(event["validation_loss"]) for event in self.finals.values()]
        return (None if start is None else float(start["loss"]), max(finals, key=_badness, default=None))


def _badness(loss: float) -> tuple[bool, float]:
    """Order losses so that no number, which compares with nothing, is the worst of all."""
    return math.isnan(loss), loss


def _without_kind(event: Event) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "kind"}


def _grouped(values: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for name, value in sorted(values.items()):
        groups.setdefault(value, []).append(name)
    return "; ".join(f"{value} at {', '.join(names)}" for value, names in groups.items())
