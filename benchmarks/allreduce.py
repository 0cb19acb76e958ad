"""All-reduce of float32 over loopback: ours (sealed, and in clear) in turn with torch's Gloo, and the machine's bound.

    python benchmarks/allreduce.py --ranks 2 3 4 --mb 100 400 --json allreduce.json
    python benchmarks/allreduce.py --ranks 2 4 --mb 100 --tensors 300

Medians of interleaved runs (`arena`). Gloo runs with the host's congestion control and, in a network of our own, with
cubic. The bound is what raw TCP costs one way for the bytes that must move, and the additions, on all cores.

Tensors of a list have memory of their own each, as the parameters of a model, and results lie one behind the other, as
those of a call of the mesh do.

Each of `rows` in the JSON has `ranks`, `mb`, `ours_seconds` (sealed, the default, of the first kind and codec asked),
`gloo_seconds`, `ratio_to_gloo` (above 1 is faster), `cpu_seconds_per_gb` by contender, and all `contenders`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import replace
from typing import Any

import arena
import pattern
import torch
from arguments import count, megabytes, output, whole

CLEAR, SEALED, OVER_TCP = "plaintext", "sealed", ", over TCP"


def main() -> None:
    """Measure every number of ranks and size; print, and perhaps save, one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=whole(2), nargs="+", default=[2, 3, 4])
    parser.add_argument("--mb", type=megabytes, nargs="+", default=[100.0], help="tensor sizes in MB (1e6 bytes)")
    parser.add_argument("--repeat", type=count, default=7, help="measurements of each contender")
    parser.add_argument(
        "--tensors", type=count, default=0, help="also reduce the same bytes as a list of so many tensors"
    )
    kinds = ["", *arena.KINDS]
    parser.add_argument(
        "--kind", nargs="+", default=[""], choices=kinds, help="schedules to use; '' for the planner's choice"
    )
    parser.add_argument("--codec", nargs="+", default=["none"], choices=arena.CODECS, help="how elements travel")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    least = min(options.mb)
    if options.tensors and min(sizes(elements_of(least), options.tensors)) < 1:
        parser.error(f"argument --tensors: {options.tensors} are more than {least:g} MB can be cut into")
    separate = arena.own_network()
    wire, add = arena.wire_cost(), arena.add_cost()
    print(f"one way over TCP {wire:.3f} CPU s/GB, an addition {add:.3f}; Gloo on cubic too: {separate}")
    rows = []
    for ranks in options.ranks:
        for mb in options.mb:
            row = measure(ranks, mb, options, separate=separate)
            row["bound_seconds"] = arena.bound(ranks, mb * 1e6, wire, add)
            rows.append(row)
            show(row)
    if options.json:
        options.json.write_text(json.dumps({"wire": wire, "add": add, "rows": rows}, indent=2) + "\n")


def measure(ranks: int, mb: float, options: argparse.Namespace, *, separate: bool) -> dict[str, Any]:
    """Run all contenders and summarize."""
    arguments = (mb, options.repeat, options.tensors, options.kind, options.codec, separate)
    collected = arena.processes(ranks, worker, *arguments)
    found = arena.summary(collected, mb * 1e6)
    ours, gloo = next(each for name, each in found.items() if name.startswith(SEALED)), found["gloo"]
    return {
        "ranks": ranks,
        "mb": mb,
        "ours_seconds": ours["seconds"],
        "gloo_seconds": gloo["seconds"],
        "ratio_to_gloo": gloo["seconds"] / ours["seconds"],
        "cpu_seconds_per_gb": {name: each["cpu_seconds_per_gb"] for name, each in found.items()},
        "contenders": found,
    }


def show(row: dict[str, Any]) -> None:
    """Print one row: above 1 is faster than Gloo as the host has it."""
    found, bound = row["contenders"], row["bound_seconds"]
    gloo = found["gloo"]["seconds"]
    print(f"{row['ranks']} ranks, {row['mb']:g} MB, bound {bound:.4f} s ({gloo / bound:.2f}x)")
    for name, each in found.items():
        against = f"{gloo / each['seconds']:5.2f}x Gloo, {each['seconds'] / bound:5.2f} bounds"
        print(f"  {name:24} {each['seconds']:.4f} s  {against}  {each['cpu_seconds_per_gb']:.3f} CPU s/GB")


async def worker(
    rank: arena.Rank, mb: float, repeat: int, tensors: int, kinds: list[str], codecs: list[str], separate: bool
) -> dict[str, list[arena.Turn]]:
    """Be one rank."""
    groups = {"gloo": rank.gloo()} | ({"gloo on cubic": rank.gloo("cubic")} if separate else {})
    elements = elements_of(mb)
    lossy = set(codecs) != {"none"}
    row, slack = (pattern.BLOCK, 0.01) if lossy else (1, 0.0)
    flat, output = pattern.brought(rank.number, elements, row), torch.zeros(elements)
    cuts = {"": ([flat], [output])}
    if tensors:
        sized = sizes(elements, tensors)
        cuts[f", {tensors} tensors"] = [part.clone() for part in flat.split(sized)], list(output.split(sized))
    contenders: dict[str, arena.Contender] = {}
    for name, share in itertools.product((SEALED, CLEAR), (True, False)):
        mode, profile = name if share else name + OVER_TCP, replace(arena.LOCAL, share_memory=share)
        bulk = await rank.bulk(mode, sealed=name == SEALED, profile=profile)
        for kind, codec in itertools.product(kinds, codecs):
            chosen = rank.plan(elements, kind or None, codec=codec)
            for label, (given, results) in cuts.items():

                async def ours(
                    turn: int,
                    bulk: Any = bulk,
                    chosen: Any = chosen,
                    given: Any = given,
                    results: Any = results,
                    label: str = label,
                ) -> None:
                    await rank.reduce(chosen, given, results, bulk, 2 * turn + bool(label))

                named = " ".join(filter(None, (mode, kind, codec if codec != "none" else "")))
                contenders[named + label] = ours
    for name, group in groups.items():

        async def theirs(turn: int, group: Any = group) -> None:
            group.allreduce([output]).wait()

        contenders[name] = theirs

    def check(name: str) -> None:
        pattern.verify(output, range(rank.ranks), name, row=row, slack=slack)

    return await arena.take_turns(
        lambda: groups["gloo"].barrier().wait(),
        contenders,
        lambda name: (output.copy_(flat), None)[1] if name in groups else (output.fill_(0), None)[1],
        check,
        repeat,
    )


def elements_of(mb: float) -> int:
    """How many float32 are so many MB."""
    return int(mb * 1e6 / 4)


def sizes(elements: int, count: int) -> list[int]:
    """Cut a vector as a model's parameters are cut: a few large matrices, many small ones and biases."""
    weights = [(1, 64, 16, 1000)[n % 4] for n in range(count)]
    cut = [max(1, elements * weight // sum(weights)) for weight in weights[:-1]]
    return [*cut, elements - sum(cut)]


if __name__ == "__main__":
    main()
