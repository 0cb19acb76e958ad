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
from collections.abc import Callable
from typing import Any

import numpy as np
from arguments import count, output, seconds, whole

from ictp2p.collectives.plan import Plan, validate
from ictp2p.collectives.planning import topology
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, plan
from ictp2p.collectives.planning.schedules import ring
from ictp2p.collectives.planning.schedules.trees import WHOLE, Tree
from ictp2p.collectives.planning.topology import Topology, Trunk
from ictp2p.types import PeerId

ELEMENTS = 250_000_000
MEGABIT = 1e6 / 8

Rng = np.random.Generator
Drawn = tuple[np.ndarray, dict[str, Any]]


def hose(size: int, rng: Rng) -> Drawn:
    """Only access links limit, alike in both directions, 20 Mbit/s to 2 Gbit/s."""
    caps = MEGABIT * 20 * 100 ** rng.random(size)
    return np.full((size, size), 1e10), {"up": caps, "down": caps}


def hose_asymmetric(size: int, rng: Rng) -> Drawn:
    """Only access links limit, and each direction has its own."""
    return np.full((size, size), 1e10), {
        "up": MEGABIT * 20 * 50 ** rng.random(size),
        "down": MEGABIT * 20 * 50 ** rng.random(size),
    }


def access(size: int, rng: Rng) -> dict[str, Any]:
    """Draw access links of 100 Mbit/s to 2 Gbit/s, each direction by itself."""
    return {"up": MEGABIT * 100 * 20 ** rng.random(size), "down": MEGABIT * 100 * 20 ** rng.random(size)}


def pairs(size: int, rng: Rng) -> Drawn:
    """Every pair has a bandwidth of its own, 20 Mbit/s to 1 Gbit/s, and nothing else limits (none is like that)."""
    return MEGABIT * 20 * 50 ** rng.random((size, size)), {}


def dense(size: int, rng: Rng) -> Drawn:
    """Pairs and access links limit."""
    return pairs(size, rng)[0], access(size, rng)


def regions(size: int, rng: Rng) -> Drawn:
    """Two to four regions; a line of 100 Mbit/s to 1 Gbit/s from each to each; 1 to 10 Gbit/s per pair inside."""
    count = int(rng.integers(2, 5))
    where = np.arange(size) % count
    width = MEGABIT * 1000 * 10 ** rng.random((size, size))
    lines = [
        ((where[:, None] == a) & (where == b), MEGABIT * 100 * 10 ** rng.random())
        for a, b in itertools.permutations(range(count), 2)
    ]
    return width, {"up": access(size, rng)["up"] * 5, "down": access(size, rng)["down"] * 5, "trunks": lines}


def oceans(size: int, rng: Rng) -> Drawn:
    """Two to six regions; 80 to 800 Mbit/s per pair inside, a fiftieth of that across; access links limit as well."""
    where = np.arange(size) % int(rng.integers(2, 7))
    width = MEGABIT * rng.uniform(80, 800, (size, size)) / np.where(where[:, None] == where, 1, 50)
    return width, {way: MEGABIT * rng.uniform(240, 1600, size) for way in ("up", "down")}


def sparse(size: int, rng: Rng) -> Drawn:
    """A third of the directed pairs is connected, and a random cycle; access links limit as well."""
    width, limits = dense(size, rng)
    there = rng.random((size, size)) < 0.35
    order = rng.permutation(size)
    there[order, np.roll(order, -1)] = True
    return np.where(there, width, 0.0), limits


def nat(size: int, rng: Rng) -> Drawn:
    """A third cannot be reached by each other, only by the rest (who accept connections)."""
    width, limits = dense(size, rng)
    behind = rng.random(size) < 0.34
    behind[rng.integers(size)] = False
    return np.where(behind[:, None] & behind, 0.0, width), limits


def trunk(size: int, rng: Rng) -> Drawn:
    """Two sites behind one shared line in each direction."""
    side = np.arange(size) < max(1, size // 2)
    lines = [MEGABIT * 50 * 10 ** rng.random() for _ in range(2)]
    shared = [(side[:, None] & ~side, lines[0]), (~side[:, None] & side, lines[1])]
    return MEGABIT * 200 * 10 ** rng.random((size, size)), {**access(size, rng), "trunks": shared}


NETWORKS: dict[str, Callable[[int, Rng], Drawn]] = {
    draw.__name__: draw for draw in (hose, hose_asymmetric, dense, pairs, regions, oceans, sparse, nat, trunk)
}


def request(size: int, drawn: Drawn, delay: float) -> PlanRequest:
    """Put a drawn network to the planner, with so many seconds one way."""
    width, limits = drawn
    who = tuple(PeerId(f"{n:032x}") for n in range(size))
    present = [(i, j) for i, j in itertools.permutations(range(size), 2) if width[i, j] > 0]
    links = {(who[i], who[j]): LinkEstimate(float(width[i, j]), delay) for i, j in present}
    trunks = tuple(
        Trunk(tuple((who[i], who[j]) for i, j in present if over[i, j]), float(line))
        for over, line in limits.get("trunks", ())
    )
    up, down = (dict(zip(who, limits.get(way, ()), strict=False)) for way in ("up", "down"))
    return PlanRequest(who, ELEMENTS, 4, links, up, down, trunks)


def fluid(network: Topology, shares: list[tuple[Tree, int]]) -> float:
    """Give the seconds that the most loaded resource needs for trees with so many elements each."""
    trees, elements = zip(*shares, strict=True)
    load = network.loads(trees, WHOLE) @ np.array(elements) * 4.0
    used = load > 0
    return float((load[used] / network.capacity[used]).max())


def planned(made: Plan) -> list[tuple[Tree, int]]:
    """List the trees of a plan and their elements."""
    return [(Tree(s.root, s.reduce_parents, s.broadcast_parents), s.stop - s.start) for s in made.shares]


def measure(name: str, size: int, seed: int, delay: float) -> dict[str, Any]:
    """Plan for one network and measure it."""
    asked = request(size, NETWORKS[name](size, np.random.default_rng([seed, size, sum(name.encode())])), delay)
    network = topology.build(asked.participants, asked.links, asked.up, asked.down, asked.trunks)
    began, worked = time.perf_counter(), time.process_time()
    made = plan(asked).plan
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    problem = validate(made.encode(), asked.participants, ELEMENTS)
    assert problem is None, problem
    cycle = ring.best_cycle(network.width, network.delay)
    around = fluid(network, [(tree, ELEMENTS // size) for tree in ring.trees(cycle)]) if cycle else None
    return {
        "network": name,
        "size": size,
        "seed": seed,
        "kind": made.kind,
        "shares": len(made.shares),
        "depth": max(max(tree.depths()) for tree, _ in planned(made)),
        "ratio": fluid(network, planned(made)) / made.bound,
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
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--seeds", type=count, default=20, help="networks of each kind and size")
    parser.add_argument("--first", type=whole(0), default=1, help="the first seed")
    parser.add_argument("--delay", type=seconds, default=0.0, help="seconds one way; the fluid model has none")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    rows, lines = [], []
    head = f"{'network':>16} {'N':>3} {'mean':>6} {'worst':>6} {'price':>6} {'MiB':>4} {'ring':>6}"
    print(f"{head} {'plan s':>7} {'CPU s':>6}  kinds")
    for name, size in itertools.product(options.networks, options.sizes):
        seeds = range(options.first, options.first + options.seeds)
        mine = [measure(name, size, seed, options.delay) for seed in seeds]
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
