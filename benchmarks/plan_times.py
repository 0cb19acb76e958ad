"""Does a plan take as long as it is priced? The real data plane over simulated links, in virtual time.

    python benchmarks/plan_times.py --sizes 8 16 32 --seeds 2 --json FILE

The networks are those of `benchmarks/networks.py`, with delays between all. Each is built in a simulated world; its
peers meet, and run the plan that the planner makes of the network as it is: nothing is measured, so nothing is
mis-measured. They run it a few times, as a training does; the first calls open connections and their windows (`first`),
and the last is what counts. What is left is what the planner has to know of the data plane: windows, room, chunks, how
lines divide themselves among connections, and how far the first and the last chunk have to go. The tensors are zeros,
of which only the size travels (`sim.elided`); all else is as with real ones.

`price` is the planner's own time over its certified bound, `took` that of the run.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from typing import Any, Final

import networks
import numpy as np
import worlds
from arguments import count, megabytes, output, seconds, whole
from networks import Drawn

from ictp2p.collectives.channel import RoundTag
from ictp2p.collectives.plan import Plan
from ictp2p.collectives.planning.planner import plan
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import all_reduce
from ictp2p.tables import Table, show
from sim import World
from sim.host import Host

KINDS: Final = ("hose", "dense", "pairs", "regions", "oceans", "trunk")
"""Networks in which everybody can be dialed."""
UP: Final = 300.0
"""Virtual seconds in which everybody knows everybody."""
_CALLS: Final = 3
"""After two, windows are open."""
PATIENCE: Final = ExecuteProfile(connect=30.0, start=60.0, total=3600.0)


def built(world: World, drawn: Drawn, delays: np.ndarray) -> list[Host]:
    """Put a drawn network into a world; its hosts, one for each participant."""
    names = [f"c{n:02}" for n in range(len(drawn.width))]
    lines = {way: line for way, line in (("up", drawn.up), ("down", drawn.down)) if line is not None}
    access = {name: {way: float(line[n]) for way, line in lines.items()} for n, name in enumerate(names)}
    hosts = worlds.built(world, access, lambda i, j: (float(drawn.width[i, j]), float(delays[i, j])))
    for number, (over, rate) in enumerate(drawn.trunks):
        world.trunk(f"line{number}", [(names[i], names[j]) for i, j in np.argwhere(over) if i != j], rate)
    return hosts


def run(world: World, hosts: list[Host], made: Plan, attempt: int, within: float) -> float:
    """Have all hosts run a plan; the virtual seconds until the last has its result."""
    inputs, outputs = world.blank(made.elements)
    tag = RoundTag(bytes(8), 1, attempt, made.digest())
    works = []
    for me, host in enumerate(hosts):
        assert host.peer is not None
        host.peer.core.m.links.round_started()  # as the notice of a round does: no probes beside it
        host.peer.bulk.stop_probes()
        works.append((host, all_reduce(made, me, [inputs], [outputs], host.peer.bulk, tag, profile=PATIENCE)))
    return worlds.together(world, works, within)


def measure(name: str, size: int, seed: int, delays: tuple[float, float], megabytes: float) -> dict[str, Any]:
    """Plan for one network, and run the plan on it."""
    drawn = networks.drawn(name, size, seed)
    ways = drawn.delays(*delays)
    worked = time.process_time()
    with worlds.world(seed) as world:
        hosts = built(world, drawn, ways)
        worlds.met(world, hosts, UP)
        who = tuple(host.peer.id for host in hosts if host.peer is not None)
        made = plan(drawn.asked(who, ways, int(megabytes * 1e6) // 4)).plan
        first, *_, took = [run(world, hosts, made, attempt, UP + 20 * made.seconds) for attempt in range(1, _CALLS + 1)]
    return {
        "network": name, "size": size, "seed": seed, "delays": delays, "megabytes": megabytes, "kind": made.kind,
        "bound": made.bound, "price": made.seconds / made.bound, "took": took / made.bound,
        "first": first / made.bound,
        "cpu_seconds": time.process_time() - worked,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> Table:
    """One line for each kind and size: the worst of all seeds."""
    lines = []
    for name, size in dict.fromkeys((row["network"], row["size"]) for row in rows):
        mine = [row for row in rows if (row["network"], row["size"]) == (name, size)]
        price, took, off = (
            max(values) for values in zip(*((r["price"], r["took"], r["took"] / r["price"]) for r in mine), strict=True)
        )
        kinds = ", ".join(sorted({row["kind"] for row in mine}))
        lines.append((name, str(size), f"{price:.3f}", f"{took:.3f}", f"{off:.3f}", str(len(mine)), kinds))
    heads = ("network", "N", "price", "took", "took / price", "seeds", "kinds")
    return Table("Time over the certified bound, worst of the seeds", heads, tuple(lines))


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--sizes", type=whole(2), nargs="+", default=[8, 16])
    parser.add_argument("--seeds", type=count, default=2, help="networks of each kind and size")
    parser.add_argument("--first", type=whole(0), default=5001, help="the first seed")
    parser.add_argument("--delay", type=seconds, default=0.02, help="seconds one way")
    parser.add_argument("--across", type=seconds, help="seconds one way between regions; else the same")
    parser.add_argument("--megabytes", type=megabytes, default=1000.0, help="of the tensor")
    parser.add_argument("--json", type=output, metavar="FILE", help="append the rows, one object per line")
    options = parser.parse_args()
    delays = (options.delay, options.delay if options.across is None else options.across)
    rows = []
    for name, size in itertools.product(options.networks, options.sizes):
        for seed in range(options.first, options.first + options.seeds):
            rows.append(measure(name, size, seed, delays, options.megabytes))
            worlds.told(rows[-1], options.json)
    show([table(rows)], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
