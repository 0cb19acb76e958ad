"""Small all-reduces, 4 B to 64 KB: the median and the slow ones, ours (sealed, and in clear) in turn with torch's Gloo.

    python benchmarks/latency.py --ranks 2 4 --json latency.json

Times are those of rank 0, in milliseconds. A stall of 40 ms (Nagle's algorithm against delayed acknowledgements) would
show in the last column.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import arena
import pattern
import torch
from arguments import count, output, whole


def main() -> None:
    """Measure every number of ranks and size; print, and perhaps save, one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=whole(2), nargs="+", default=[2, 4])
    parser.add_argument("--bytes", type=whole(4), nargs="+", default=[4, 1024, 4096, 16384, 65536])
    parser.add_argument("--repeat", type=count, default=200, help="measurements of each contender")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    rows = []
    print(f"{'ranks':>5} {'bytes':>6} {'contender':10} {'p50 ms':>8} {'p99 ms':>8} {'most ms':>8}")
    for ranks in options.ranks:
        for row in arena.processes(ranks, worker, options.bytes, options.repeat)[0]:
            rows.append({"ranks": ranks, **row})
            figures = " ".join(f"{row[name]:8.3f}" for name in ("p50", "p99", "most"))
            print(f"{ranks:5} {row['bytes']:6} {row['contender']:10} {figures}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


async def worker(rank: arena.Rank, sizes: list[int], repeat: int) -> list[dict[str, Any]]:
    """Be one rank."""
    group = rank.gloo()
    planes = {
        "sealed": await rank.bulk("sealed", sealed=True),
        "plaintext": await rank.bulk("plaintext", sealed=False),
    }
    rows = []
    for size in sizes:
        tensor, output = pattern.brought(rank.number, size // 4), torch.zeros(size // 4)
        expected = pattern.total(range(rank.ranks), size // 4)
        chosen = rank.plan(size // 4)
        times: dict[str, list[float]] = {name: [] for name in (*planes, "gloo")}
        for turn in range(repeat + 1):
            first = turn % len(times)  # nobody always comes after the same one
            for name in (*list(times)[first:], *list(times)[:first]):
                output.copy_(tensor)
                began = time.perf_counter()
                if name == "gloo":
                    group.allreduce([output]).wait()
                else:
                    await rank.reduce(chosen, [tensor], [output], planes[name], turn)
                if turn:
                    times[name].append(1e3 * (time.perf_counter() - began))
                assert torch.equal(output, expected), (name, output, expected)
        rows += [{"bytes": size, "contender": name, **spread(found)} for name, found in times.items()]
    return rows


def spread(times: list[float]) -> dict[str, float]:
    """Give the median, the 99th percentile and the most."""
    ordered = sorted(times)
    return {"p50": statistics.median(ordered), "p99": ordered[len(ordered) * 99 // 100], "most": ordered[-1]}


if __name__ == "__main__":
    main()
