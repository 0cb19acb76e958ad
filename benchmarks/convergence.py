"""How long a mesh takes to find itself after a failure: measured on the real peers in virtual time, beside the bounds.

    python benchmarks/convergence.py control rounds lossy --clusters 4 16 64 --seeds 100 --json runs/convergence.jsonl
    python benchmarks/convergence.py --json runs/convergence.jsonl --plot docs/convergence.svg

All worlds but those of a data centre (`lan`, 0.1 to 0.5 ms) are in the WAN profile: 10 to 80 ms one way between every
two clusters, 2 ms of jitter; one worker per cluster, but in most two in one of them. What happens to them, happens at a
random moment after they have settled:

- `control`: first the path between two clusters goes dark (nothing is reset: both must find out); then the leader of
  the cluster of two loses its power; then a whole cluster does. Nobody trains.
- `rounds`: a small model is trained all along. The leader of the cluster of two loses its power just after a round was
  opened; then a whole cluster does, at any moment after all were in a round again.
- `lossy`: every link loses a tenth of its segments for minutes; nobody dies in them, and deaths and suspicions are
  counted; then a whole cluster loses its power, while the loss goes on.
- `cut-lan`, `cut-wan`: large all-reduces, one after the other. A line that one uses is cut under it, between two that
  do not coordinate. (With 16 clusters a run takes a minute and a half of a core.)
- `deaf-lan`, `deaf-wan`: a training, in which nothing reaches the coordinator any more; what it says still leaves.
- `leave-lan`, `leave-wan`: a training, whose coordinator loses its power; another voter leaves politely before anybody
  can have taken that one for dead.

Rows are appended to the file as they are measured, one JSON object per line, and a run that is in it already is not
done again: an interrupted campaign goes on where it was. The table shows all that the file holds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import convergence_bounds as bounds
import numpy as np
import torch
from arguments import count, output, positive, whole
from convergence_cuts import cut_in_a_call, deaf, leaving
from convergence_faults import LOSSY, control, lossy, rounds

from ictp2p.tables import Table, show

# ---------------------------------------------------------------- what is measured


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of the table."""

    kind: str
    key: str
    title: str
    bound: Callable[[int, float], float]
    """Seconds, of the number of clusters and the quantile."""


MEASURES = (
    Measure("control", "known", "crash known by all", bounds.crash_known),
    Measure("control", "leader", "new leader known by all", bounds.leader_known),
    Measure("control", "routed", "every pair has a working route", bounds.routed),
    Measure("control", "rest", "routing tables at rest", bounds.at_rest),
    Measure("control", "unrouted", "no route to a dead cluster", bounds.unrouted),
    Measure("rounds", "leader", "next commit: leader dies in a round", bounds.committed),
    Measure("rounds", "crash", "next commit: cluster dies at any time", bounds.committed_after_crash),
)
PROFILES = ("lan", "wan")
KINDS = {"control": control, "rounds": rounds, "lossy": lossy} | {
    f"{name}-{profile}": functools.partial(kind, profile)
    for name, kind in {"cut": cut_in_a_call, "deaf": deaf, "leave": leaving}.items()
    for profile in PROFILES
}
CUTS = (
    ("cut", "usual", "an all-reduce, before"),
    ("cut", "aborted", "a line is cut in an all-reduce: the attempt is given up"),
    ("cut", "longest", "the longest of four all-reduces from the cut on"),
    ("deaf", "deaf", "next commit: the coordinator hears nobody"),
    ("leave", "left", "who leaves just after the coordinator has died has left"),
)
"""The same of what is measured in several profiles: kind without the profile, key, title."""
COLOURS = ("#2b6cb0", "#2f855a", "#dd6b20", "#805ad5")


# ---------------------------------------------------------------- campaigns


def campaign(options: argparse.Namespace) -> None:
    """Measure what is not in the file yet."""
    done = {(row["kind"], row["clusters"], row["seed"]) for row in load(options.json)}
    for clusters, kind, seed in itertools.product(options.clusters, options.kinds, range(options.seeds)):
        if (kind, clusters, seed) not in done:
            row = apart(KINDS[kind], clusters, seed, options.timeout)
            append(options.json, {"kind": kind, "clusters": clusters, "seed": seed, **row})


def apart(measure: Callable[[int, int], dict[str, Any]], clusters: int, seed: int, timeout: float) -> dict[str, Any]:
    """One run in a process of its own, which is killed when it takes too long."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    began = time.monotonic()
    process = context.Process(target=_child, args=(theirs, measure, clusters, seed))
    process.start()
    theirs.close()
    row: dict[str, Any] = {"failed": f"longer than {timeout:g} s"}
    with contextlib.suppress(EOFError):
        if ours.poll(timeout):
            row = ours.recv()
    process.kill()
    process.join()
    return {**row, "wall": round(time.monotonic() - began, 1)}


def _child(pipe: Any, measure: Callable[[int, int], dict[str, Any]], clusters: int, seed: int) -> None:
    torch.set_num_threads(1)
    try:
        row = measure(clusters, seed)
    except AssertionError as error:
        row = {"failed": str(error)[:2000]}
    row["cpu"] = round(sum(os.times()[:2]), 1)
    pipe.send(row)


def load(path: Path) -> list[dict[str, Any]]:
    """All rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    shown = {key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()}
    print(shown, flush=True)


# ---------------------------------------------------------------- what people see


def tables(rows: list[dict[str, Any]]) -> Iterator[Table]:
    """Measured beside bounds, what loss did, and what came of cuts."""
    heads: tuple[str, ...] = ("seconds to", "clusters", "p50", "p99", "longest", "bound p50", "bound p99", "seeds")
    lines = []
    for measure in MEASURES:
        for n, seconds in found(rows, measure.kind, measure.key).items():
            figures = (*quantiles(seconds), measure.bound(n, 0.5), measure.bound(n, 0.99))
            lines.append((measure.title, str(n), *(f"{figure:.1f}" for figure in figures), str(len(seconds))))
    yield Table("convergence after a failure, WAN profile", heads, tuple(lines))
    yield with_losses([row for row in rows if row["kind"] == "lossy" and "failed" not in row])
    yield after_cuts(rows)
    failed = [row for row in rows if "failed" in row]
    why = [(row["kind"], str(row["clusters"]), str(row["seed"]), row["failed"].splitlines()[0]) for row in failed]
    yield Table("runs that came to nothing", ("kind", "clusters", "seed", "why"), tuple(why))


def with_losses(lost: list[dict[str, Any]]) -> Table:
    """How many thought others dead or suspected them, and how soon a death was known."""
    heads = (
        "clusters",
        "seeds",
        "minutes each",
        "rounds",
        "deaths",
        "suspicions",
        "then a crash: s, p50",
        "longest",
        "bound p99",
    )
    lines = []
    for n in sorted({row["clusters"] for row in lost}):
        runs = [row for row in lost if row["clusters"] == n]
        sums = [sum(row[key] for row in runs) for key in ("committed", "deaths", "suspicions")]
        known = sorted(row["known"] for row in runs)
        crash = (f"{seconds:.1f}" for seconds in (np.median(known), known[-1], bounds.crash_known(n, 0.99)))
        lines.append((str(n), str(len(runs)), f"{LOSSY / 60:g}", *map(str, sums), *crash))
    return Table("a tenth of all segments lost; beside it the bound without loss", heads, tuple(lines))


def after_cuts(rows: list[dict[str, Any]]) -> Table:
    """What came of lines that were cut, and of who left beside a death, by profile."""
    heads = ("seconds", "profile", "clusters", "p50", "p99", "longest", "bound", "told to keep its folder", "seeds")
    lines = []
    for (name, key, title), profile in itertools.product(CUTS, PROFILES):
        warned = found(rows, f"{name}-{profile}", "warned")
        for n, seconds in found(rows, f"{name}-{profile}", key).items():
            bound = f"{bounds.given_up(profile):.1f}" if key == "aborted" else ""
            figures = (f"{figure:.1f}" for figure in quantiles(seconds))
            told = f"{sum(warned[n]):g}" if n in warned else ""
            lines.append((title, profile, str(n), *figures, bound, told, str(len(seconds))))
    return Table("lines that are cut, and leaving", heads, tuple(lines))


def quantiles(ascending: list[float]) -> tuple[float, float, float]:
    """Median, p99 and the largest."""
    return float(np.quantile(ascending, 0.5)), float(np.quantile(ascending, 0.99)), ascending[-1]


def found(rows: list[dict[str, Any]], kind: str, key: str) -> dict[int, list[float]]:
    """What was measured, ascending, by number of clusters."""
    good = [row for row in rows if row["kind"] == kind and "failed" not in row and key in row]
    sizes = sorted({row["clusters"] for row in good})
    return {n: sorted(row[key] for row in good if row["clusters"] == n) for n in sizes}


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the distributions, one panel per measure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 6.4), layout="constrained")
    *panels, key = figure.subplots(2, 4).flat
    for axes, measure in zip(panels, MEASURES, strict=True):
        for (n, seconds), colour in zip(found(rows, measure.kind, measure.key).items(), COLOURS, strict=False):
            share = (np.arange(len(seconds)) + 1) / len(seconds)
            axes.step([0, *seconds], [0, *share], where="post", color=colour, label=f"{n} clusters")
            axes.axvline(measure.bound(n, 0.99), color=colour, linestyle=":", linewidth=1)
        axes.set_title(measure.title, fontsize=10)
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("virtual seconds after the fault", fontsize=8)
    key.legend(*panels[0].get_legend_handles_labels(), loc="upper left")
    key.set_axis_off()
    figure.suptitle("Share of the runs in which it had happened by then; dotted: the p99 of the bound", fontsize=10)
    figure.savefig(path)


def main() -> None:
    """Measure, then show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--clusters", type=whole(4), nargs="+", default=[4, 16, 64], metavar="N")
    parser.add_argument("--seeds", type=count, default=100, metavar="COUNT", help="seeds 0 to COUNT - 1 of each")
    parser.add_argument("--json", type=Path, default=Path("runs/convergence.jsonl"), metavar="FILE")
    parser.add_argument("--plot", type=output, metavar="FILE")
    parser.add_argument("--timeout", type=positive, default=900.0, metavar="SECONDS", help="of real time, per run")
    options = parser.parse_args()
    try:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.open("a").close()
    except OSError as error:
        parser.error(f"argument --json: {str(options.json)!r} cannot be written to: {error.strerror}")
    try:
        load(options.json)
    except ValueError as error:
        parser.error(f"argument --json: {str(options.json)!r} holds what is no row of earlier runs: {error}")
    campaign(options)
    rows = load(options.json)
    show([table for table in tables(rows) if table.rows], sys.stdout)
    if options.plot is not None:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
