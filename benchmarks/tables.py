"""The tables of `docs/performance.md` and its picture, made of what `goals` has measured.

    python benchmarks/tables.py --folder runs/goals                              # print the tables
    python benchmarks/tables.py --folder runs/goals --into docs/performance.md   # put all in their places there

A figure that is copied by hand stays when the code has changed. So that page has a place for each table, between
`<!-- NAME -->` and `<!-- end -->`, and nobody else writes there; its picture lies beside it. Each is of one step of
`goals`; one that was not measured keeps what it had.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import goals
import heterogeneous
from arguments import folder
from judging import CLEAR, SEALED, Results

OURS = (SEALED, CLEAR, f"{SEALED}, over TCP", f"{CLEAR}, over TCP")
GLOO = ("gloo", "gloo on cubic")
CODECS = ("none", "bfloat16", "int8")


def main() -> None:
    """Make all tables of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=folder, required=True, help="where `goals` has left its results")
    parser.add_argument("--into", type=Path, help="the page to put them into; else they are printed")
    options = parser.parse_args()
    if options.into and not options.into.is_file():
        parser.error(f"argument --into: {options.into} is no file")
    results = goals.results(options.folder)
    made = {name: "\n".join(make(results)) for name, (steps, make) in TABLES.items() if results.keys() >= {*steps}}
    made["measured"] = "\n".join(f"- {line}" for line in goals.about(options.folder))
    if options.into:
        options.into.write_text(filled(options.into.read_text(), made))
        draw(results, options.into.parent)
    else:
        print("\n\n".join(f"<!-- {name} -->\n\n{text}\n\n<!-- end -->" for name, text in made.items()))


def filled(page: str, made: dict[str, str]) -> str:
    """Put tables into their places.

    Raises:
        ValueError: the page names a table that there is not.
    """
    places = re.compile(r"<!-- (?!end )([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
    if unknown := set(places.findall(page)) - {*TABLES, "measured"}:
        raise ValueError(f"no such table: {', '.join(sorted(unknown))}")

    def put(place: re.Match[str]) -> str:
        name = place[1]
        return f"<!-- {name} -->\n\n{made[name]}\n\n<!-- end -->" if name in made else place[0]

    return places.sub(put, page)


def draw(results: Results, folder: Path) -> None:
    """Make the pictures of the page, beside it."""
    for name, (step, plot) in PICTURES.items():
        if step in results:
            plot(results[step], folder / name)


def markdown(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterable[str]:
    """Write a table."""
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def all_reduce(results: Results) -> Iterable[str]:
    """Seconds, in brackets the machine's bounds, times Gloo."""
    rows = [row for step in ("allreduce", "allreduce-400") for row in results[step]["rows"]]

    def cell(row: dict[str, Any], name: str) -> str:
        taken, gloo = row["contenders"][name]["seconds"], row["contenders"]["gloo"]["seconds"]
        return f"{taken:.3f} s ({taken / row['bound_seconds']:.2f}) {gloo / taken:.2f}x"

    names = [name for name in (*OURS, *GLOO) if name in rows[0]["contenders"]]
    return markdown(
        ["MB", "ranks", *names], ([f"{row['mb']:g}", row["ranks"], *(cell(row, n) for n in names)] for row in rows)
    )


def all_reduce_cpu(results: Results) -> Iterable[str]:
    """CPU seconds per GB."""
    rows = [row for step in ("allreduce", "allreduce-400") for row in results[step]["rows"]]
    names = [name for name in (*OURS, *GLOO) if name in rows[0]["contenders"]]
    cells = ([f"{row['mb']:g}", row["ranks"], *(f"{row['cpu_seconds_per_gb'][n]:.2f}" for n in names)] for row in rows)
    return markdown(["MB", "ranks", *names], cells)


def lists(results: Results) -> Iterable[str]:
    """CPU of a list of tensors over that of one."""

    def cell(row: dict[str, Any], name: str) -> str:
        spent = row["cpu_seconds_per_gb"]
        listed = next(each for each in spent if each.startswith(f"{name}, ") and "tensors" in each)
        return f"{spent[listed] / spent[name]:.2f}"

    return markdown(
        ["ranks", *OURS], ([row["ranks"], *(cell(row, n) for n in OURS)] for row in results["lists"]["rows"])
    )


def small(results: Results) -> Iterable[str]:
    """The median of small all-reduces, in milliseconds."""
    of = {(row["ranks"], row["contender"], row["bytes"]): row for row in results["latency"]["rows"]}
    sizes = list(dict.fromkeys(size for _, _, size in of))
    for ranks, name in dict.fromkeys((ranks, name) for ranks, name, _ in of):
        of[ranks, name, 0] = {"most": max(of[ranks, name, size]["most"] for size in sizes)}
    rows = (
        [ranks, name, *(f"{of[ranks, name, size]['p50']:.2f}" for size in sizes), f"{of[ranks, name, 0]['most']:.1f}"]
        for ranks, name in dict.fromkeys((ranks, name) for ranks, name, _ in of)
    )
    return markdown(["ranks", "", *(f"{size} B" for size in sizes), "longest call"], rows)


def shaped(results: Results) -> Iterable[str]:
    """Shares of the plan's bound; seconds by codec; CPU."""

    def cells(row: dict[str, Any]) -> list[str]:
        found = row["contenders"]
        shares = [f"{found[name]['share']:.3f}" if name in found else "" for name in ("none", "paced", "line", "gloo")]
        seconds = [f"{found[name]['seconds']:.2f}" if name in found else "" for name in (*CODECS, "gloo")]
        spent = [f"{found[name]['cpu_seconds_per_gb']:.1f}" if name in found else "" for name in ("none", "gloo")]
        return [row["scene"], f"{row['mb']:g}", f"{row['bound_seconds']:.2f}", *shares, *seconds, ", ".join(spent)]

    heads = ["link", "MB", "bound, s", "ours", "paced", "line", "Gloo"]
    heads += ["float32, s", "bfloat16, s", "int8, s", "Gloo, s", "CPU s per GB: ours, Gloo"]
    return markdown(heads, map(cells, results["wan"]["rows"]))


def eight(results: Results) -> Iterable[str]:
    """Eight clusters: contenders over the certified bound."""

    def cells(name: str, found: dict[str, Any]) -> list[str]:
        return [name, f"{found['seconds']:.2f}", f"{found['over_bound']:.3f}", f"{found['cpu_seconds_per_gb']:.0f}"]

    contenders = results["heterogeneous"]["contenders"]
    return markdown(["contender", "s", "over the bound", "CPU s per GB"], itertools.starmap(cells, contenders.items()))


def planner(results: Results) -> Iterable[str]:
    """Plans over the certified bound, in brackets the best ring; seconds."""
    of = {(line["network"], line["size"]): line for line in results["planner"]["lines"]}
    sizes = list(dict.fromkeys(size for _, size in of))

    def cell(network: str, size: int) -> str:
        line = of[network, size]
        return f"{line['worst_ratio']:.3f} ({line['mean_ring_ratio']:.1f}) {line['worst_plan_cpu_seconds']:.2f} s"

    networks = dict.fromkeys(network for network, _ in of)
    rows = ([network, *(cell(network, size) for size in sizes)] for network in networks)
    return markdown(["network", *(f"N = {size}" for size in sizes)], rows)


def recovery(results: Results) -> Iterable[str]:
    """How much later than a clean run survivors hold the result."""

    def row(what: str, step: str) -> list[str]:
        rows = results[step]["rows"]
        later = ", ".join(f"{each['later']:.3f}" for each in rows)
        return [what, f"{statistics.median(each['clean'] for each in rows):.3f}", later]

    rows = [row("SIGKILL of one of four", "recovery"), row("SIGSTOP of one of four, stall deadline of 2 s", "stop")]
    return markdown(["event", "a clean run, s", "the right result later by, s"], rows)


def long_runs(results: Results) -> Iterable[str]:
    """What joining, memory and a campaign of kills came to."""
    joining, chaos, memory = results["joining"], results["chaos"], results["memory"]["rows"]
    rows = [
        (
            f"joining with {joining['mb']:g} MB from {joining['providers']}: the fetch over the line's time",
            ", ".join(f"{each['over_line']:.3f}" for each in joining["rows"]),
        )
    ]
    rows += [
        (
            f"MB beside the tensor of {row['mb']:g} MB, {row['ranks']} ranks, {SEALED if row['sealed'] else CLEAR}",
            ", ".join(f"{each:.1f}" for each in row["grown_mb"]),
        )
        for row in memory
    ]
    harms = ", ".join(f"{chaos[kind]} {kind}" for kind in ("kills", "stops", "starts"))
    problems, standstill = chaos["hangs"] + chaos["other_problems"], chaos["longest_standstill"]
    rows += [
        (f"{chaos['rounds']} rounds under {harms}: wrong results and hangs", problems),
        ("the same: the longest standstill", f"{standstill:.1f} s"),
    ]
    rows += [
        (f"the same: {what} {whose}", ", ".join(f"{each:.0f}" for each in held[kind]))
        for whose, held in (
            ("of the longest life, in its thirds", chaos["eldest"]),
            ("of lives that began in each third, at their ends", chaos),
        )
        for kind, what in (("descriptors", "descriptors beside connections"), ("megabytes", "megabytes"))
    ]
    return markdown(["what", "measured"], rows)


def codecs(results: Results) -> Iterable[str]:
    """Speeds and errors of codecs on one core."""

    def cells(row: dict[str, Any]) -> list[str]:
        speeds = [f"{row[f'{what}_gb_s']:.1f}" for what in ("encode", "add", "decode")]
        below = " / ".join(f"{rate:.0f}" for rate in row.get("pays_below_gbit_s", {}).values())
        return [row["codec"], f"{row['bytes_per_element']:.3f}", f"{row['relative_error']:.2g}", *speeds, below]

    heads = ["codec", "bytes per element", "error", "encode", "add", "decode", "pays below, Gbit/s, 2 / 4 / 8 clusters"]
    return markdown(heads, map(cells, results["codecs"]["rows"]))


def peers(results: Results) -> Iterable[str]:
    """Ours beside the transports of torchft and hivemind, in seconds; how many times as fast as each."""
    names = list(dict.fromkeys(name for row in results["peers"]["rows"] for name in row["found"]))

    def cells(row: dict[str, Any]) -> list[object]:
        ours = row["found"]["ours"]["seconds"]
        taken = [row["found"].get(name) for name in names]
        return [
            row["peers"],
            f"{row['mb']:g}",
            *("" if each is None else f"{each['seconds']:.3f} ({each['seconds'] / ours:.2f}x)" for each in taken),
            ", ".join("" if each is None else f"{each['cpu_seconds'] / row['mb'] * 1e3:.1f}" for each in taken),
        ]

    return markdown(["peers", "MB", *names, "CPU s per GB, in this order"], map(cells, results["peers"]["rows"]))


Make = Callable[[Results], Iterable[str]]
TABLES: dict[str, tuple[tuple[str, ...], Make]] = {
    "goals": ((), goals.table),
    "all-reduce": (("allreduce", "allreduce-400"), all_reduce),
    "all-reduce-cpu": (("allreduce", "allreduce-400"), all_reduce_cpu),
    "lists": (("lists",), lists),
    "small": (("latency",), small),
    "shaped": (("wan",), shaped),
    "eight": (("heterogeneous",), eight),
    "planner": (("planner",), planner),
    "recovery": (("recovery", "stop"), recovery),
    "long-runs": (("joining", "memory", "chaos"), long_runs),
    "codecs": (("codecs",), codecs),
    "peers": (("peers",), peers),
}
"""Which steps of `goals` each is made of, and how."""
PICTURES: dict[str, tuple[str, Callable[[dict[str, Any], Path], None]]] = {
    "heterogeneous.svg": ("heterogeneous", heterogeneous.plot),
}
"""Likewise."""


if __name__ == "__main__":
    main()
