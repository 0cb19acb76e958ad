"""Memory of one all-reduce beside the tensors: the most that each participant's process grew by, above what it held.

    python benchmarks/memory.py --ranks 4 --mb 1000

Inputs and outputs are touched before, and the connections opened, so what is left is staging, buffers of connections
and chunks under way in this process (`VmHWM`, the high-water mark of resident memory, reset before the measurement).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import arena
import pattern
import torch
from arguments import megabytes, output, whole


def main() -> None:
    """Measure sealed and in clear; print, and perhaps save, one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=whole(2), default=4)
    parser.add_argument("--mb", type=megabytes, default=1000.0, help="tensor size in MB (1e6 bytes)")
    parser.add_argument("--kind", choices=arena.KINDS, help="schedule to use; the planner's choice if not given")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    rows = []
    for sealed in (True, False):
        grown = arena.processes(options.ranks, worker, options.mb, options.kind, sealed)
        if failed := [each for each in grown if isinstance(each, BaseException)]:
            raise failed[0]
        rows.append({"ranks": options.ranks, "mb": options.mb, "sealed": sealed, "grown_mb": [g / 1e6 for g in grown]})
        print(f"{'sealed' if sealed else 'plaintext':10} most {max(grown) / 1e6:.1f} MB, each {rows[-1]['grown_mb']}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


async def worker(rank: arena.Rank, mb: float, kind: str | None, sealed: bool) -> int:
    """Be one rank; give the bytes that it grew by."""
    elements = int(mb * 1e6 / 4)
    tensor, output = pattern.brought(rank.number, elements), torch.zeros(elements)
    bulk = await rank.bulk("memory", sealed=sealed)
    rank.agree("listening")  # first touches of gigabytes take some longer than others
    small = rank.plan(rank.ranks)
    await rank.reduce(small, [tensor[: rank.ranks]], [output[: rank.ranks]], bulk, 0)
    chosen = rank.plan(elements, kind)
    rank.agree("touched")
    forget_peak()
    before = held("VmRSS")
    await rank.reduce(chosen, [tensor], [output], bulk, 1)
    grown = held("VmHWM") - before
    pattern.verify(output, range(rank.ranks), "the sum")
    return grown


def forget_peak() -> None:
    """Let the high-water mark begin at what is held now."""
    Path("/proc/self/clear_refs").write_text("5")  # Linux 4.0


def held(name: str) -> int:
    """Read a figure of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
