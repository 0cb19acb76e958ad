"""The planner on random networks: how near its plans come to the certified bound, beside the best ring, and how soon.

    python benchmarks/planner.py --sizes 4 6 8 12 16 32 64 --seeds 20 --json planner.json

Each network is drawn from a fresh seed. Times are those of the fluid model: the most loaded resource paces the plan,
as it does when flows are paced at their shares; beside them the planner's own price, delays and windows included, and
the most room that a plan asks of a participant, both as worst of all seeds. The bound is the planner's own, certified
by `planning.bounds`. The ring is the best that is found (exactly, up to nine participants), on the same links.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from typing import Any

import networks
import numpy as np
from arguments import count, megabytes, output, seconds, whole

from ictp2p.collectives.plan import Plan, validate
from ictp2p.collectives.planning import topology
from ictp2p.collectives.planning.packing import carried
from ictp2p.collectives.planning.planner import plan
from ictp2p.collectives.planning.schedules import ring
from ictp2p.collectives.planning.schedules.trees import WHOLE, Tree
from ictp2p.collectives.planning.topology import Topology
from ictp2p.types import PeerId


def fluid(network: Topology, shares: list[tuple[Tree, int]]) -> float:
    """Give the seconds that the most loaded resource needs for trees with so many elements each."""
    trees, elements = zip(*shares, strict=True)
    load = carried(network.loads(trees, WHOLE), np.array(elements)) * 4.0
    used = load > 0
    return float((load[used] / network.capacity[used]).max())


def planned(made: Plan) -> list[tuple[Tree, int]]:
    """List the trees of a plan and their elements."""
    return [(Tree(s.root, s.reduce_parents, s.broadcast_parents), s.stop - s.start) for s in made.shares]


def measure(name: str, size: int, seed: int, delays: tuple[float, float], elements: int) -> dict[str, Any]:
    """Plan for one network, with these seconds one way inside of regions and across, and measure the plan."""
    drawn = networks.drawn(name, size, seed)
    who = tuple(PeerId(f"{n:032x}") for n in range(size))
    asked = drawn.asked(who, drawn.delays(*delays), elements)
    network = topology.build(asked.participants, asked.links, asked.up, asked.down, asked.trunks)
    began, worked = time.perf_counter(), time.process_time()
    made = plan(asked).plan
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    problem = validate(made.encode(), asked.participants, elements)
    assert problem is None, problem
    cycle = ring.best_cycle(network.width, network.delay)
    around = fluid(network, [(tree, elements // size) for tree in ring.trees(cycle)]) if cycle else None
    return {
        "network": name,
        "size": size,
        "seed": seed,
        "kind": made.kind,
        "shares": len(made.shares),
        "ratio": fluid(network, planned(made)) / made.bound,
        "bound": made.bound,
        "price": made.seconds / made.bound,
        "room": max(made.room(node) for node in range(size)),
        "ring_ratio": around / made.bound if around else None,
        "plan_seconds": seconds,
        "plan_cpu_seconds": cpu,
    }


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarize the networks of one kind and size."""
    ratios = [row["ratio"] for row in rows]
    rings = [row["ring_ratio"] for row in rows if row["ring_ratio"]]
    return {
        "network": rows[0]["network"],
        "size": rows[0]["size"],
        "seeds": len(rows),
        "mean_ratio": statistics.mean(ratios),
        "worst_ratio": max(ratios),
        "worst_price": max(row["price"] for row in rows),
        "worst_room": max(row["room"] for row in rows),
        "mean_ring_ratio": statistics.mean(rings) if rings else None,
        "rings": len(rings),
        "worst_plan_seconds": max(row["plan_seconds"] for row in rows),
        "worst_plan_cpu_seconds": max(row["plan_cpu_seconds"] for row in rows),
        "kinds": sorted({row["kind"] for row in rows}),
    }


def main() -> None:
    """Measure every kind of network in every size; print, and perhaps save, a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=whole(2), nargs="+", default=[4, 6, 8, 12, 16, 32, 64])
    parser.add_argument("--networks", nargs="+", default=list(networks.NETWORKS), choices=list(networks.NETWORKS))
    parser.add_argument("--seeds", type=count, default=20, help="networks of each kind and size")
    parser.add_argument("--first", type=whole(0), default=1, help="the first seed")
    parser.add_argument("--delay", type=seconds, default=0.0, help="seconds one way; the fluid model has none")
    parser.add_argument("--across", type=seconds, help="seconds one way between regions; else the same")
    parser.add_argument("--megabytes", type=megabytes, default=1000.0, help="of the vector")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    delays = (options.delay, options.delay if options.across is None else options.across)
    rows, lines = [], []
    head = f"{'network':>16} {'N':>3} {'mean':>6} {'worst':>6} {'price':>6} {'MiB':>4} {'ring':>6}"
    print(f"{head} {'plan s':>7} {'CPU s':>6}  kinds")
    for name, size in itertools.product(options.networks, options.sizes):
        seeds = range(options.first, options.first + options.seeds)
        mine = [measure(name, size, seed, delays, int(options.megabytes * 1e6) // 4) for seed in seeds]
        rows += mine
        line = summarize(mine)
        lines.append(line)
        ring_ratio = f"{line['mean_ring_ratio']:6.2f}" if line["mean_ring_ratio"] else "  none"
        print(
            f"{name:>16} {size:3} {line['mean_ratio']:6.3f} {line['worst_ratio']:6.3f} "
            f"{line['worst_price']:6.3f} {line['worst_room'] >> 20:4} {ring_ratio} "
            f"{line['worst_plan_seconds']:7.3f} {line['worst_plan_cpu_seconds']:6.3f}  {', '.join(line['kinds'])}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({"lines": lines, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
