"""Every goal of the data plane and the planner, measured one after the other on this machine: which of them hold?

    python benchmarks/goals.py --folder runs/goals
    python benchmarks/goals.py --folder runs/goals --only allreduce memory     # these again, the others as they were
    python benchmarks/goals.py --folder runs/goals --only                      # nothing again: the table alone

A figure of one day, version and machine cannot be set beside one of another: here all are of one. Each step is a
benchmark of this folder with arguments as in `docs/performance.md`; its rows and its output stay in the folder
(`NAME.json`, `NAME.log`), with the version, the machine and its load (`NAME.about.json`). A step that fails is told,
and the goals that need it count as not measured. `judging` has the goals; `tables` makes those of
`docs/performance.md`, for which the last two steps are: they have no goal. Needs root, on Linux, half an hour, and a
machine that does nothing else: its load before each step stands beside the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from arguments import folder, named
from judging import GOALS, Figure, Results

HERE = Path(__file__).resolve().parent
STEPS: dict[str, str] = {
    "allreduce": "allreduce.py --ranks 2 3 4 --mb 100 --repeat 7",
    "allreduce-400": "allreduce.py --ranks 2 3 4 --mb 400 --repeat 5",
    "lists": "allreduce.py --ranks 2 3 4 --mb 100 --tensors 300 --repeat 9",
    "latency": "latency.py --ranks 2 4 --repeat 300",
    "wan": "wan.py --repeat 5",
    "heterogeneous": "heterogeneous.py --warm 5 --repeat 5",
    "planner": "planner.py --sizes 4 6 8 16 32 64 --seeds 8 --first 5001",
    "recovery": "recovery.py --ranks 4 --mb 100 --repeat 5",
    "stop": "recovery.py --ranks 4 --mb 100 --repeat 3 --stop",
    "joining": "joining.py --mb 100 --repeat 3",
    "memory": "memory.py --ranks 4 --mb 1000",
    "chaos": "-m benchmarks.chaos --rounds 200 --seed 20 --lasting 1",
    "codecs": "codecs.py",
    "peers": "peers.py --peers 2 4 --mb 10 100 --repeat 6",
}
"""What to run, by the name of its results."""
SHOWN = 4


def main() -> int:
    """Run the steps, print the table of goals; how many of the steps failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=folder, required=True, help="where results are kept; made if it is not there")
    parser.add_argument("--only", **(named(STEPS) | {"nargs": "*"}), default=list(STEPS))
    options = parser.parse_args()
    failed = [name for name in STEPS if name in options.only and not run(name, options.folder)]
    print("\n".join([*about(options.folder), "", *table(results(options.folder))]))
    return len(failed)


def run(name: str, into: Path) -> bool:
    """Run one step; whether it ended well. What an earlier run of it had found is gone."""
    files = {kind: into.resolve() / f"{name}{kind}" for kind in (".json", ".log", ".about.json")}
    files[".json"].unlink(missing_ok=True)
    program, *arguments = STEPS[name].split()
    script = [program] if program.startswith("-") else [str(HERE / program)]
    found, began = machine(), time.monotonic()
    print(f"{name}: {STEPS[name]}", flush=True)
    with files[".log"].open("w") as log:
        command = [sys.executable, *script, *arguments, "--json", str(files[".json"])]
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=HERE.parent, check=False).returncode
    minutes = (time.monotonic() - began) / 60
    files[".about.json"].write_text(json.dumps(found | {"command": STEPS[name], "minutes": minutes}, indent=1) + "\n")
    print(f"  {minutes:.1f} minutes" + (f", ended with {code}: see {files['.log']}" if code else ""), flush=True)
    return code == 0


def results(of: Path) -> Results:
    """Read what each step has found, of those that were run."""
    return {name: json.loads(path.read_text()) for name in STEPS if (path := of / f"{name}.json").exists()}


def machine() -> dict[str, Any]:
    """What a figure depends on: the version, the machine, and what else it does."""
    cpu = dict(_pair(line) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    longest = "with" if "avx512f" in cpu.get("flags", "") else "without"
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "version": git.stdout.strip() or "not known",
        "cpu": f"{cpu.get('model name', platform.machine())}, {longest} AVX-512",
        "cores": os.cpu_count(),
        "software": f"Linux {platform.release()}, Python {platform.python_version()}, torch {torch.__version__}",
        "load": round(os.getloadavg()[0], 2),
    }


def about(into: Path) -> Iterable[str]:
    """Say of what version and machine the results are: of more than one, if they were measured apart."""
    told = [json.loads(path.read_text()) for path in sorted(into.glob("*.about.json"))]
    for kind in ("version", "cpu", "cores", "software"):
        yield f"{kind}: {', '.join(str(each) for each in dict.fromkeys(each[kind] for each in told))}"
    loads = sorted(each["load"] for each in told)
    yield f"load before each step: {loads[0]:g} to {loads[-1]:g}" if loads else "nothing was measured yet"


def table(results: Results) -> Iterable[str]:
    """The goals in Markdown: whether each is met, from where to where its figures go, and what misses it most."""
    yield "| goal | met | figures | missed by |"
    yield "|---|---|---|---|"
    for goal in GOALS:
        figures = list(goal.figures(results)) if all(step in results for step in goal.steps) else []
        missing = sorted((each for each in figures if not each.good), key=Figure.off, reverse=True)
        met = (
            "not measured"
            if not figures
            else "yes"
            if not missing
            else f"{len(figures) - len(missing)} of {len(figures)}"
        )
        span = sorted(each.value for each in figures)
        shown = f"{span[0]:.3g} to {span[-1]:.3g} {goal.unit}".strip() if span else ""
        yield f"| {goal.text} | {met} | {shown} | {listed(missing)} |"


def listed(missing: Sequence[Figure]) -> str:
    """Name those that miss most, and how many more there are."""
    more = len(missing) - SHOWN
    return "; ".join(map(str, missing[:SHOWN])) + (f"; {more} more" if more > 0 else "")


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


if __name__ == "__main__":
    sys.exit(main())
