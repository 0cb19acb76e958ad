"""Lines that change, simulated: how soon after it has a mesh the plan that is right for them?

    python benchmarks/virtual_weather.py --seeds 1 2 3 4 5 6

As `weather.py`, on virtual time, so that many networks take no longer than one: clusters behind random access lines, of
which nobody is told, call an all-reduce again and again. The line of one of them falls to a fifth, is as it was, then a
pair has a narrow line of its own, and all is as at first; after each change there are `--calls` calls. Of each it is
told what it took over the certified bound on the lines as they are, agreement included, the mean over the networks.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import worlds
from arguments import count, megabytes, output, seconds, whole
from heterogeneous import PAYLOAD, Network, fluid
from learned_lines import UP, Mesh, built

from ictp2p.collectives.planning import planner
from ictp2p.tables import Table, show
from sim import World

SETTLE = 20.0
"""Virtual seconds for the first probes."""
PART = 0.2
"""Of its line that a cluster keeps."""
NARROW = 5.0
"""Mbit/s of a pair's own line."""
BYTES = 1e6 / 8 * PAYLOAD
"""Bytes/s of a Mbit/s."""


def drawn(seed: int, clusters: int) -> list[tuple[str, Network]]:
    """Draw a network of lines of 20 to 100 Mbit/s, and what becomes of it."""
    rng = random.Random(seed)
    up = tuple(float(round(20 * 5 ** rng.random())) for _ in range(clusters))
    places = tuple((rng.uniform(0, 40), rng.uniform(0, 40)) for _ in range(clusters))
    fair = Network(up, up, places, {}, ())
    slow, (a, b) = rng.randrange(clusters), rng.sample(range(clusters), 2)
    slower = tuple(rate * PART if n == slow else rate for n, rate in enumerate(up))
    return [
        ("at first", fair),
        ("one has a fifth of its line", replace(fair, up=slower, down=slower)),
        ("as at first", fair),
        ("a pair has 5 Mbit/s", replace(fair, pairs={(a, b): NARROW, (b, a): NARROW})),
        ("as at first again", fair),
    ]


def measured(seed: int, options: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """Let a mesh live through it; what its calls took."""
    spells = drawn(seed, options.clusters)
    elements = int(options.mb * 1e6) // 4
    with worlds.world(seed) as world:
        hosts = built(world, spells[0][1])
        worlds.met(world, hosts, UP)
        mesh = Mesh(world, hosts)
        world.run_for(SETTLE)
        for what, network in spells:
            become(world, network)
            calls = []
            for _ in range(options.calls):
                took, made, names, _ = mesh.call(elements, within=3600.0)
                truth = network.request(names, elements)
                bound = planner.plan(truth).plan.bound
                calls.append({"needs": fluid(truth, made) / bound, "took": took / bound})
                world.run_for(options.rest)
            yield what, calls


def become(world: World, network: Network) -> None:
    """Give the lines of a world the rates of a network."""
    for number, (up, down) in enumerate(zip(network.up, network.down, strict=True)):
        world.access(f"c{number}", up=up * BYTES, down=down * BYTES)
    for a, b in itertools.permutations(range(len(network.up)), 2):
        own = min(network.pairs.get((a, b), math.inf), 1e5)
        world.link(f"c{a}", f"c{b}", bandwidth=own * BYTES, one_way=True)


def table(found: dict[str, list[list[float]]]) -> Table:
    """One line for each spell, one column for each call, and the mean of all."""
    calls = range(len(next(iter(found.values()))[0]))
    lines = tuple(
        (
            what,
            *(f"{statistics.mean(each[n] for each in rows):.2f}" for n in calls),
            f"{statistics.mean(itertools.chain(*rows)):.3f}",
        )
        for what, rows in found.items()
    )
    return Table("Over the certified bound, mean", ("lines", *(f"call {n + 1}" for n in calls), "all"), lines)


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=whole(0), nargs="+", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--clusters", type=whole(3), default=4)
    parser.add_argument("--mb", type=megabytes, default=8.0, help="tensor size in MB (1e6 bytes)")
    parser.add_argument("--calls", type=count, default=12, help="calls after each change")
    parser.add_argument("--rest", type=seconds, default=4.0, help="virtual seconds between two calls")
    parser.add_argument("--json", type=output, metavar="FILE", help="append the results, one object per line")
    options = parser.parse_args()
    found: dict[str, list[list[float]]] = {}
    file: Path | None = options.json
    for seed in options.seeds:
        for what, calls in measured(seed, options):
            found.setdefault(what, []).append([call["took"] for call in calls])
            worlds.told({"seed": seed, "lines": what, "calls": calls}, file)
    show([table(found)], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
