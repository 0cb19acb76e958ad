"""The goals, as figures with limits: what the rows of the benchmarks say of each.

A goal has many figures (sizes, ranks, links), each with a limit of its own, and is met if all of them are good.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Results = dict[str, Any]
"""What each step of `goals` wrote, by its name."""

SEALED, CLEAR = "sealed", "plaintext"
WAYS = ("", ", over TCP")
STALL = 2.0
"""Seconds after which `recovery --stop` holds a participant for lost."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, and the limit that it should keep."""

    where: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def good(self) -> bool:
        """Whether it keeps its limits."""
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    def off(self) -> float:
        """By what part of its limit it misses it; 0 if it is good."""
        above = 0.0 if self.most is None else (self.value - self.most) / (self.most or 1.0)
        below = 0.0 if self.least is None else (self.least - self.value) / self.least
        return max(0.0, above, below)

    def __str__(self) -> str:
        return f"{self.where} {self.value:.3g}"


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the table."""

    text: str
    steps: Sequence[str]
    figures: Callable[[Results], Iterator[Figure]]
    unit: str = ""


def clear_against_gloo(results: Results) -> Iterator[Figure]:
    """Times as fast as Gloo with the host's congestion control."""
    for row, way in _rows(results):
        yield Figure(_name(row, way), _ratio(row, "gloo", CLEAR + way), least=1.4 if row["ranks"] == 4 else 1.5)


def clear_against_cubic(results: Results) -> Iterator[Figure]:
    """Times as fast as Gloo with the congestion control that ours asks for."""
    for row, way in _rows(results):
        if "gloo on cubic" in row["contenders"]:
            yield Figure(_name(row, way), _ratio(row, "gloo on cubic", CLEAR + way), least=1.1)


def sealed_against_gloo(results: Results) -> Iterator[Figure]:
    """Sealed, times as fast as Gloo in clear."""
    for row, way in _rows(results):
        yield Figure(_name(row, way), _ratio(row, "gloo", SEALED + way), least=1.0)


def sealed_against_clear(results: Results) -> Iterator[Figure]:
    """CPU of sealing."""
    for row, way in _rows(results):
        yield Figure(_name(row, way), _cpu(row, SEALED + way) / _cpu(row, CLEAR + way), most=1.6)


def against_the_bound(results: Results) -> Iterator[Figure]:
    """Times what raw TCP and the additions cost on all cores."""
    for (row, way), how in itertools.product(_rows(results), (CLEAR, SEALED)):
        taken = row["contenders"][how + way]["seconds"] / row["bound_seconds"]
        yield Figure(f"{how}, {_name(row, way)}", taken, most=1.2)


def lists(results: Results) -> Iterator[Figure]:
    """CPU of a list of tensors over that of one flat tensor."""
    for row in results["lists"]["rows"]:
        for way, how in itertools.product(WAYS, (CLEAR, SEALED)):
            name = how + way
            listed = next(each for each in row["contenders"] if each.startswith(name + ", ") and "tensors" in each)
            yield Figure(f"{how}, {_name(row, way)}", _cpu(row, listed) / _cpu(row, name), most=1.05)


def small(results: Results) -> Iterator[Figure]:
    """The median of a small all-reduce over Gloo's."""
    of = {(row["ranks"], row["bytes"], row["contender"]): row["p50"] for row in results["latency"]["rows"]}
    for (ranks, size, how), taken in of.items():
        if how != "gloo":
            yield Figure(f"{how}, {ranks} ranks, {size} B", taken / of[ranks, size, "gloo"], most=1.0)


def slowest_small(results: Results) -> Iterator[Figure]:
    """The longest small all-reduce of ours."""
    for row in results["latency"]["rows"]:
        if row["contender"] != "gloo":
            where = f"{row['contender']}, {row['ranks']} ranks, {row['bytes']} B"
            yield Figure(where, row["most"], most=40.0)


def codecs(results: Results) -> Iterator[Figure]:
    """Times as fast as float32."""
    for row in results["wan"]["rows"]:
        found = row["contenders"]
        for codec in ("bfloat16", "int8"):
            yield Figure(f"{codec}, {row['scene']}", found["none"]["seconds"] / found[codec]["seconds"], least=1.0)


def shaped(results: Results) -> Iterator[Figure]:
    """The share of a plan's bound on lines that lose nothing."""
    yield from _shares(results, 0.95, lambda scene: "loss" not in scene and "relayed" not in scene)


def lossy(results: Results) -> Iterator[Figure]:
    """The same on lines that lose packets."""
    yield from _shares(results, 0.80, lambda scene: "loss" in scene)


def relayed(results: Results) -> Iterator[Figure]:
    """The same over a third."""
    yield from _shares(results, 0.90, lambda scene: "relayed" in scene)


def eight(results: Results) -> Iterator[Figure]:
    """Eight clusters: the mesh over the certified bound."""
    yield Figure("mesh", results["heterogeneous"]["contenders"]["mesh"]["over_bound"], most=1.15)


def planner(results: Results) -> Iterator[Figure]:
    """Plans over the certified bound."""
    for line in results["planner"]["lines"]:
        most = 1.3 if line["network"] == "sparse" and line["size"] <= 8 else 1.1
        yield Figure(f"{line['network']} of {line['size']}", line["worst_ratio"], most=most)


def planner_seconds(results: Results) -> Iterator[Figure]:
    """How long planning takes."""
    for line in results["planner"]["lines"]:
        yield Figure(f"{line['network']} of {line['size']}", line["worst_plan_seconds"], most=0.5)


def killed(results: Results) -> Iterator[Figure]:
    """How much later than a clean run survivors of a SIGKILL hold the result."""
    for turn, row in enumerate(results["recovery"]["rows"], 1):
        yield Figure(f"turn {turn}", row["later"], most=0.25)


def stopped(results: Results) -> Iterator[Figure]:
    """The same of a SIGSTOP: the stall deadline, and what a SIGKILL may take."""
    for turn, row in enumerate(results["stop"]["rows"], 1):
        yield Figure(f"turn {turn}", row["later"], most=STALL + 0.25)


def joining(results: Results) -> Iterator[Figure]:
    """The fetch of a state over what the line needs for its bytes."""
    yield Figure("median", statistics.median(row["over_line"] for row in results["joining"]["rows"]), most=1.3)


def memory(results: Results) -> Iterator[Figure]:
    """What each participant grew by."""
    for row in results["memory"]["rows"]:
        yield Figure(SEALED if row["sealed"] else CLEAR, max(row["grown_mb"]), most=64.0)


def chaos(results: Results) -> Iterator[Figure]:
    """What went wrong under kills and joins."""
    for kind in ("hangs", "other_problems"):
        yield Figure(kind.replace("_", " "), results["chaos"][kind], most=0)


def flat(results: Results) -> Iterator[Figure]:
    """What the life that was spared held beside its connections in the last third of the campaign, over the first.

    Others die young, many of them with a group half made: their ends say little of a leak.
    """
    for kind in ("descriptors", "megabytes"):
        first, *_, last = results["chaos"]["eldest"][kind]
        yield Figure(kind, last / first, most=1.1)


BOTH = ("allreduce", "allreduce-400")
GOALS = (
    Goal("in clear, 100 and 400 MB: 1.5x Gloo at 2 and 3 ranks, 1.4x at 4", BOTH, clear_against_gloo, "x"),
    Goal("in clear, never below 1.1x Gloo on cubic", BOTH, clear_against_cubic, "x"),
    Goal("sealed, at least as fast as Gloo in clear", BOTH, sealed_against_gloo, "x"),
    Goal("sealed, at most 1.6 times our own CPU in clear", BOTH, sealed_against_clear, "times"),
    Goal("within 1.2 of the machine's own bound", BOTH, against_the_bound, "bounds"),
    Goal("a list of 300 tensors within 5 % of one flat tensor (CPU)", ("lists",), lists, "times"),
    Goal("4 B to 64 KB: p50 below Gloo's", ("latency",), small, "of Gloo's"),
    Goal("no stall of 40 ms", ("latency",), slowest_small, "ms"),
    Goal("bfloat16 and int8 faster than float32, to 1 Gbit/s", ("wan",), codecs, "x"),
    Goal("shaped links: 0.95 of the plan's bound", ("wan",), shaped),
    Goal("the same with 0.1 % loss: 0.80", ("wan",), lossy),
    Goal("a relayed pair: 0.90", ("wan",), relayed),
    Goal("eight clusters: within 1.15 of the certified bound", ("heterogeneous",), eight, "bounds"),
    Goal("planner, fluid model: within 1.1 of the bound (sparse N <= 8: 1.3)", ("planner",), planner, "bounds"),
    Goal("planner: under 0.5 s", ("planner",), planner_seconds, "s"),
    Goal("SIGKILL of one of 4, 100 MB: right result at most 0.25 s later", ("recovery",), killed, "s"),
    Goal("SIGSTOP: the stall deadline (2 s), no hang", ("stop",), stopped, "s"),
    Goal("joining with 100 MB from two: at most 1.3 times the line's time", ("joining",), joining, "times"),
    Goal("at most 64 MB beside the tensor, 1 GB, 4 ranks", ("memory",), memory, "MB"),
    Goal("200 rounds under kills and joins: exact, no hang", ("chaos",), chaos, "problems"),
    Goal("the same: descriptors and memory of a life through all of it flat", ("chaos",), flat, "times"),
)


def _rows(results: Results) -> Iterator[tuple[dict[str, Any], str]]:
    """Each all-reduce, through shared memory and over TCP."""
    yield from itertools.product([row for step in BOTH for row in results[step]["rows"]], WAYS)


def _name(row: dict[str, Any], way: str) -> str:
    return f"{row['mb']:g} MB, {row['ranks']} ranks{way}"


def _ratio(row: dict[str, Any], theirs: str, ours: str) -> float:
    return float(row["contenders"][theirs]["seconds"] / row["contenders"][ours]["seconds"])


def _cpu(row: dict[str, Any], contender: str) -> float:
    return float(row["cpu_seconds_per_gb"][contender])


def _shares(results: Results, least: float, of: Callable[[str], bool]) -> Iterator[Figure]:
    for row in results["wan"]["rows"]:
        if of(row["scene"]):
            yield Figure(row["scene"], row["contenders"]["none"]["share"], least=least)
