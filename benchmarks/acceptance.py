"""The four demonstrations at the size that they were promised for: eight clusters, a minute of training, a gibibyte.

    python benchmarks/acceptance.py --seeds 3 --json runs/acceptance.jsonl

Each is a scenario that is shipped, at other settings: eight clusters of two workers, 30 ms one way between them, a
gigabit per second of access each (in the third, links of their own of 16 MB/s), an inner phase of 60 s, and a state of
1 GiB, of which only the size travels. A round of that takes half a minute of a core; `--scale 16` divides the state and
all bandwidths by as much, which keeps every duration but those of slow start. Every line is one thing that had to be
seen; the last column says in how many of the runs it was. Exit status 0 only if everything was, in all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from arguments import between, count, output

from ictp2p.tables import Table, show
from sim.scenario import play, shipped

LEAST, MOST = 0.001, 1000.0
"""Scales: below them a state is of more than the simulator's terabytes, beyond them messages that are not scaled would
fill the links."""
SIZE = {"clusters": 8, "compute": 60.0, "megabytes": 2**30 / 1e6, "access": 125e6}


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One promise, and the scenario that shows it."""

    title: str
    scenario: str
    settings: Mapping[str, object]


DEMONSTRATIONS = (
    Demonstration("leader crash: next commit within 20 s + transfer", "leader_dies", {"rounds": 1}),
    Demonstration("a joiner is in by its second round", "cluster_joins", {"rounds": 1}),
    Demonstration(
        "a link at a tenth: another plan after 2 rounds, within 1.15 of the bound",
        "bandwidth_changes",
        {"rounds": 4, "bandwidth": 16e6, "bound": 1.15},
    ),
    Demonstration("5/3: five commit, three apply nothing, back within a round", "partition_and_heal", {"rounds": 1}),
)


def measured(demonstration: Demonstration, seed: int, scale: float) -> dict[str, Any]:
    """Play one demonstration; say what was seen."""
    scenario = shipped(demonstration.scenario)
    settings: dict[str, Any] = {**SIZE, **demonstration.settings}
    scaled = {key: settings[key] / scale for key in ("megabytes", "access", "bandwidth") if key in settings}
    with play(scenario, seed, {**settings, **scaled}) as stage:
        checks = [{"what": c.what, "seen": c.seen, "wanted": c.wanted, "ok": c.ok} for c in stage.checks]
        rounds = [
            {
                "round": a.round, "attempt": a.attempt, "opened": a.opened, "ended": a.ended, "version": a.version,
                "clusters": len(a.participants), "plan": a.plan and a.plan.kind, "planned": a.plan and a.plan.seconds,
                "bound": a.plan and a.plan.bound, "aborted": a.aborted,
            }
            for a in stage.attempts.values()
        ]  # fmt: skip
        return {
            "demonstration": demonstration.title, "scenario": scenario.name, "seed": seed, "scale": scale,
            "ok": stage.ok, "breach": stage.breach, "checks": checks, "virtual": stage.world.now,
            "real": round(stage.seconds, 1), "rounds": rounds,
        }  # fmt: skip


def tables(rows: list[dict[str, Any]]) -> Iterator[Table]:
    """For each demonstration, what was seen in the first run, and in how many runs it was good."""
    for title in dict.fromkeys(row["demonstration"] for row in rows):
        runs = [row for row in rows if row["demonstration"] == title]
        heads = ("goal", "wanted", *(f"seed {row['seed']}" for row in runs), "holds")
        names = dict.fromkeys(check["what"] for row in runs for check in row["checks"])
        lines = []
        for name in names:
            found = [next((c for c in row["checks"] if c["what"] == name), None) for row in runs]
            good = sum(c is not None and c["ok"] for c in found)
            wanted = next(c["wanted"] for c in found if c is not None)
            shown = [c["seen"][:44] if c is not None else "-" for c in found]
            lines.append((name, wanted, *shown, "yes" if good == len(runs) else f"{good} of {len(runs)}"))
        broken = [row for row in runs if row["breach"]]
        lines += [(f"seed {row['seed']}: {row['breach'].splitlines()[0]}",) + ("",) * (len(runs) + 2) for row in broken]
        yield Table(title, heads, tuple(lines))


def main() -> int:
    """Play what is asked for; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=count, default=1, metavar="COUNT", help="seeds 1 to COUNT of each")
    parser.add_argument(
        "--scale", type=between(LEAST, MOST), default=1.0, metavar="FACTOR", help="divide the state and all bandwidths"
    )
    parser.add_argument("--only", nargs="*", choices=[d.scenario for d in DEMONSTRATIONS], metavar="SCENARIO")
    parser.add_argument("--json", type=output, metavar="FILE", help="append what was seen, one object per line")
    options = parser.parse_args()
    rows = []
    for demonstration in DEMONSTRATIONS:
        if options.only is None or demonstration.scenario in options.only:
            for seed in range(1, options.seeds + 1):
                rows.append(measured(demonstration, seed, options.scale))
                print(f"{demonstration.scenario} seed {seed}: {rows[-1]['real']} s", file=sys.stderr, flush=True)
                if options.json is not None:
                    with options.json.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    for table in tables(rows):
        show([table], sys.stdout)
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
