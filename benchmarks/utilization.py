"""How fast a link must be for a given compute utilization: two published tables, by our simulator and real policies.

    python benchmarks/utilization.py --json docs/utilization.json --plot docs/utilization.svg

Table 4 of Douillard et al., "Streaming DiLoCo with overlapping communication" (2025), and Table 7 of Charles et al.,
"Communication-Efficient Language Model Training Scales Reliably and Robustly: Scaling Laws for DiLoCo" (2025): two
replicas, models of 1, 10 and 100 billion parameters of which each step takes 0.1, 0.8 and 4.9 s, bfloat16 on the wire
(four bits where it says FP4). The policies and peers are the product's own in a simulated world, on a model that is
sizes only (`sim.elided_model`). Time and sizes are in proportion: the steps between two rounds are `PHASE` virtual
seconds and a fragment `ELEMENTS` elements whatever they stand for, and the link's rate is scaled back.

Two readings. *Whole steps*: a round begins when the optimizer has stepped, as the policies do it. *In the backward
pass*: the published simulator lets the reduction of a layer begin once its gradient is there, so that the last backward
pass, two thirds of a step, hides communication. The same policies then count a step as three, one forward and two
backward, and their overlap is two of these longer. For each utilization the slowest sufficient link is searched for.

What is published are points of a grid, 50 from 0.1 to 1000 Gbit/s in equal ratios (1.207), which all the printed values
are. Which one stands for a link between two of them the first table says: for its 15 cells of DiLoCo, where nothing but
bytes and steps counts, it is the one below, in all 15. So ours is taken down to the grid in the same way, in both
tables, and compared in whole steps of it.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from arguments import output

import ictp2p
from ictp2p.sync.pace import Pace
from sim import World
from sim.elided_model import SizeOnlyWeights
from sim.training import Training

TARGETS = (0.50, 0.80, 0.90, 0.95, 0.99)
LOWEST = 0.1
"""First point of the published grid, in Gbit/s."""
GRID: float = 1e4 ** (1 / 49)
"""Ratio of neighbours in it."""
PHASE = 10.0
"""Virtual seconds of the steps from one round to the next in the mean, whatever they stand for: long beside what a
round takes apart from its bytes, which the published simulator does not count."""
ELEMENTS = 8_000_000
"""Elements of a simulated fragment, whatever it stands for: enough that a chunk is little beside it."""
WARM, MEASURED = 1, 2
"""Rounds before what is measured, and at least in it."""
DELAY = 1e-6
"""Virtual seconds one way: the published simulator has none."""
PARTS = 3
"""Parts of a step where the backward pass hides communication: one forward, two backward."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to train."""

    every: int = 100
    fragments: int = 1
    overlap: int = 0
    codec: str = "bfloat16"

    @property
    def between(self) -> float:
        """Steps from one round to the next, in the mean."""
        return self.every / self.fragments

    @property
    def measured(self) -> int:
        """Rounds until the turns of the fragments lie in the steps as before."""
        return MEASURED * self.fragments // math.gcd(self.every, self.fragments)

    @property
    def unit(self) -> float:
        """Virtual seconds of a step, whatever it stands for."""
        return PHASE / self.between


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a published table."""

    table: str
    name: str
    parameters: float
    seconds: float
    """Of one step."""
    setting: Setting
    published: tuple[float, ...]
    """Gbit/s for each of `TARGETS`."""


def _streaming(
    name: str, parameters: float, seconds: float, fragments: int, rows: tuple[tuple[float, ...], ...]
) -> list[Line]:
    settings = (
        ("data parallel", Setting(every=1)),
        ("DiLoCo", Setting()),
        ("Streaming DiLoCo", Setting(fragments=fragments)),
        ("+ overlap", Setting(fragments=fragments, overlap=1)),
        ("+ overlap, FP4", Setting(fragments=fragments, overlap=1, codec="e3m0")),
    )
    return [
        Line(f"Streaming DiLoCo, {name}", what, parameters, seconds, setting, row)
        for (what, setting), row in zip(settings, rows, strict=True)
    ]


LINES = (
    *_streaming(
        "1B",
        1e9,
        0.1,
        8,
        (
            (86.8, 152.6, 184.2, 222.3, 569.0),
            (1.4, 6.2, 13.3, 23.3, 86.8),
            (1.4, 5.2, 9.1, 16.0, 28.1),
            (1.4, 4.3, 6.2, 9.1, 11.0),
            (0.4, 0.9, 1.7, 2.0, 3.0),
        ),
    ),
    *_streaming(
        "10B",
        1e10,
        0.8,
        16,
        (
            (104.8, 222.3, 222.3, 268.3, 471.5),
            (1.7, 7.5, 16.0, 33.9, 104.8),
            (1.7, 5.2, 9.1, 13.3, 19.3),
            (1.7, 3.6, 5.2, 6.2, 7.5),
            (0.4, 0.9, 1.4, 1.4, 1.7),
        ),
    ),
    *_streaming(
        "100B",
        1e11,
        4.9,
        36,
        (
            (184.2, 323.8, 390.7, 390.7, 471.5),
            (3.0, 11.0, 23.3, 49.4, 184.2),
            (2.4, 6.2, 9.1, 11.0, 19.3),
            (1.7, 3.6, 4.3, 5.2, 5.2),
            (0.5, 0.9, 1.1, 1.1, 1.4),
        ),
    ),
    Line("Scaling laws, 10B", "H=1", 1e10, 0.8, Setting(every=1), (104.8, 184.2, 222.3, 222.3, 390.7)),
    Line("Scaling laws, 10B", "H=10", 1e10, 0.8, Setting(every=10), (16.0, 49.4, 86.8, 152.6, 222.3)),
    Line("Scaling laws, 10B", "H=50", 1e10, 0.8, Setting(every=50), (3.0, 11.0, 23.3, 41.0, 126.5)),
    Line("Scaling laws, 10B", "H=100", 1e10, 0.8, Setting(every=100), (1.4, 6.2, 13.3, 23.3, 86.8)),
    Line("Scaling laws, 10B", "H=300", 1e10, 0.8, Setting(every=300), (0.5, 2.0, 4.3, 9.1, 41.0)),
)


class WholeSteps(Pace):
    """The policy's timetable where a step counts as several: every turn is a number of whole steps."""

    def __init__(self, steps: int, parts: int) -> None:
        super().__init__(steps * parts)
        self._whole, self._parts = Pace(steps), parts

    def fit(self, fragments: int, overlap: int) -> None:
        """Take over how the policy's rounds lie in a phase."""
        self._whole.fit(fragments, overlap // self._parts)
        super().fit(fragments, overlap)

    def length(self, fragment: int = 0) -> int:
        """Parts of steps from the launch before to that of `fragment`."""
        return self._parts * self._whole.length(fragment)


def utilization(setting: Setting, rate: float, *, hidden: bool) -> float:
    """Simulate one way to train; give the share of the time that is computing.

    Args:
        setting: which.
        rate: of the link, in elements of float32's 4 bytes per second, each way.
        hidden: whether rounds begin with the last backward pass.
    """
    parts = PARTS if hidden else 1
    step_seconds = setting.unit / parts
    warm = parts * WARM * setting.every // setting.fragments
    measured = parts * setting.measured * setting.every // setting.fragments

    def program(training: Training) -> float:
        model = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False) for _ in range(setting.fragments))
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        policy = ictp2p.StreamingDiLoCo(
            training,
            model,
            inner,
            sync_every=WholeSteps(setting.every, parts),
            fragments=[[str(number)] for number in range(setting.fragments)],
            overlap=setting.overlap * parts + (PARTS - 1 if hidden else 0),
            codec=setting.codec,
            arithmetic=functools.partial(SizeOnlyWeights, training.host.world, ELEMENTS),
        )
        with policy:
            training.meet()
            began = 0.0
            for step in range(warm + measured):
                if step == warm:  # connections are open
                    began = training.clock()
                training.compute(step_seconds)
                inner.step()
            return measured * step_seconds / (training.clock() - began)

    with World(seed=1, profile="lan", audit=False) as world:
        world.links(delay=DELAY, bandwidth=rate * 4.0)
        for name in "ab":
            world.cluster(name, workers=1, program=program)
        found = world.train(within=1e6)
    return min(found.values())


_MOST = 1e4
"""How many times faster than the first guess a link is tried."""


class Search:
    """Finds the rate of a link that gives a utilization, and remembers what was simulated on the way.

    The time lost, as a share of the time that computes, grows in proportion to one over the rate, from where nothing is
    hidden any more: so a chord between two simulated points leads to the third.
    """

    def __init__(self, run: Callable[[float], float], guess: float) -> None:
        self._run, self._guess = run, guess
        self.points: dict[float, float] = {}
        """Time lost by rate."""

    def rate(self, target: float) -> float:
        """The slowest rate that gives `target`, to 2 %."""
        wanted = 1.0 / target - 1.0
        if len(self.points) > 1:
            near, second = sorted(self.points, key=lambda r: abs(math.log((self.points[r] + 1e-3) / wanted)))[:2]
            ahead = self._chord(near, second, wanted)
            if ahead > 0.0 and (found := self._settled(near, 1.0 / ahead, wanted)) is not None:
                return found
        low, high = self._bracket(wanted)
        while high / low > 1.04:
            margin = (high / low) ** 0.05
            between = min(high / margin, max(low * margin, 1.0 / self._chord(low, high, wanted)))
            if (found := self._settled(low, between, wanted)) is not None:
                return found
            low, high = (between, high) if self._lost(between) > wanted else (low, between)
        return math.sqrt(low * high)

    def _chord(self, one: float, other: float, wanted: float) -> float:
        """One over the rate at which a line through two simulated points comes to `wanted`."""
        rise = self.points[one] - self.points[other]
        if not rise:
            return 0.0
        return 1.0 / one + (1.0 / other - 1.0 / one) * (self.points[one] - wanted) / rise

    def _settled(self, known: float, rate: float, wanted: float) -> float | None:
        """Simulate `rate`; what it has to be corrected to, if that is nearly nothing."""
        if self._lost(rate) == self.points[known] or not min(self.points[rate], self.points[known]) > 0.0:
            return None  # where all is hidden the line through them is not that of the time lost
        inverse = self._chord(known, rate, wanted)
        return 1.0 / inverse if abs(inverse * rate - 1.0) < 0.02 else None

    def _bracket(self, wanted: float) -> tuple[float, float]:
        """The nearest rates, simulated, of which one loses more than `wanted` and the other does not."""
        rate = min(self.points, key=lambda r: abs(math.log((self.points[r] + 1e-3) / wanted)), default=self._guess)
        while self._lost(rate) <= wanted:
            rate /= 1.5
        while self._lost(rate) > wanted:
            if rate > _MOST * self._guess:
                raise ValueError(f"{wanted:.3f} of the time is lost at any rate: {self.points}")
            rate *= 1.5
        return max(r for r in self.points if self.points[r] > wanted), rate

    def _lost(self, rate: float) -> float:
        if rate not in self.points:
            self.points[rate] = 1.0 / self._run(rate) - 1.0
        return self.points[rate]


def gigabits(line: Line, rate: float) -> float:
    """The rate of the link in Gbit/s that `rate` elements per second stand for."""
    scale = line.parameters / (ELEMENTS * line.setting.fragments)
    return rate * 32.0 * scale * (line.setting.unit / line.seconds) / 1e9


def point(gigabits: float) -> int:
    """The number of the last point of the published grid that is not above a rate."""
    return math.floor(math.log(gigabits / LOWEST, GRID))


def published_point(printed: float) -> int:
    """The number of the point that was printed, with one decimal place."""
    return round(math.log(printed / LOWEST, GRID))


def main() -> None:
    """Search for every cell; print, and perhaps save, the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", help="words that the names of tables or lines contain; all if none")
    parser.add_argument("--json", type=output, help="file to write everything to, after every line")
    parser.add_argument("--plot", type=output, help="file to draw the comparison in")
    options = parser.parse_args()
    chosen = [line for line in LINES if wanted(line, options.only)]
    if not chosen:
        parser.error(f"argument --only: no line has {' or '.join(map(repr, options.only))} in its name")
    torch.set_num_threads(1)
    searches: dict[tuple[Setting, bool], Search] = {}
    rows = []
    for hidden in (True, False):
        for line in chosen:
            rows.append(measure(line, searches, hidden=hidden))
            show(rows[-1])
            if options.json:
                options.json.write_text(json.dumps({"targets": TARGETS, "rows": rows}, indent=1) + "\n")
    summarize(rows)
    if options.plot:
        plot(rows, options.plot)


def wanted(line: Line, words: Sequence[str] | None) -> bool:
    """Whether a line has one of the words in its name, or its table's."""
    return not words or any(word in f"{line.table} {line.name}" for word in words)


def measure(line: Line, searches: dict[tuple[Setting, bool], Search], *, hidden: bool) -> dict[str, Any]:
    """Find the cells of one line. What is in proportion to what was simulated before is not simulated again."""
    began = time.process_time()
    setting = line.setting
    run = functools.partial(utilization, setting, hidden=hidden)
    guess = ELEMENTS / PHASE / (8.0 if setting.codec == "e3m0" else 2.0)
    search = searches.setdefault((setting, hidden), Search(run, guess))
    found = [gigabits(line, search.rate(target)) for target in TARGETS]
    steps = [point(ours) - published_point(theirs) for ours, theirs in zip(found, line.published, strict=True)]
    return {
        "table": line.table,
        "line": line.name,
        "hidden": hidden,
        "gigabits": found,
        "published": line.published,
        "grid_steps": steps,
        "simulations": len(search.points),
        "cpu_seconds": time.process_time() - began,
    }


def show(row: dict[str, Any]) -> None:
    """Print one line."""
    how = "in the backward pass" if row["hidden"] else "whole steps"
    cells = " ".join(
        f"{ours:7.2f}/{theirs:5.1f} ({steps:+d})"
        for ours, theirs, steps in zip(row["gigabits"], row["published"], row["grid_steps"], strict=True)
    )
    print(f"{row['table']:22} {row['line']:18} {how:21} {cells}  {row['cpu_seconds']:.0f} CPU s", flush=True)


def summarize(rows: list[dict[str, Any]]) -> None:
    """Say how many cells are within one step of the grid."""
    for hidden in (True, False):
        how = "in the backward pass" if hidden else "whole steps"
        for paper in ("Streaming DiLoCo", "Scaling laws"):
            of = [row for row in rows if row["hidden"] is hidden and row["table"].startswith(paper)]
            steps = [abs(step) for row in of for step in row["grid_steps"]]
            near, same = sum(step <= 1 for step in steps), steps.count(0)
            print(f"{paper}, {how}: {near} of {len(steps)} cells within one step of the grid, {same} the same")


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Draw ours against the published."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.5, 5.5))
    for hidden, marker in ((True, "o"), (False, "x")):
        pairs = [
            pair
            for row in rows
            if row["hidden"] is hidden
            for pair in zip(row["published"], row["gigabits"], strict=True)
        ]
        label = "rounds begin in the backward pass" if hidden else "rounds begin after the step"
        axes.loglog(*zip(*pairs, strict=True), marker, markersize=4, label=label, fillstyle="none")
    ends = [0.3, 1000.0]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (GRID, 1.0 / GRID):
        axes.plot(ends, [factor * end for end in ends], color="black", linewidth=0.6, linestyle=":")
    axes.set(xlabel="published, Gbit/s", ylabel="ours, Gbit/s")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file)


if __name__ == "__main__":
    main()
