"""What does a mesh learn of its lines, and what is that worth? Real peers that probe, measure, agree and reduce.

    python benchmarks/learned_lines.py --networks namespaces 1 2 3 --json FILE

A simulated world, so that no other program makes a line look slow: each network has eight clusters behind access lines
of their own, of which nobody is told. `namespaces` is the network of `benchmarks/heterogeneous.py`; a number is the
seed of a random one. The peers meet, have some seconds for their probes, and call an all-reduce again and again. Of
each call it is told, over the certified bound on the lines as they are: what the planner thought that its plan would
take (*price*), what the busiest line needs for the plan's bytes in truth (*needs*), and what the call took (*took*),
agreement included. A price below what is needed shows lines that are not known; what is taken beyond what is needed,
lines that are crowded.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import sys
import time
from typing import Any

import worlds
from arguments import count, megabytes, output, seconds, whole
from heterogeneous import PAYLOAD, Network, fluid

from ictp2p.collectives import plan as plans
from ictp2p.collectives.planning import planner
from ictp2p.machine import Notice
from ictp2p.runtime.reduction import Reduction
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.values import Open, Spec
from ictp2p.tables import Table, show
from ictp2p.types import PeerId
from sim import World
from sim.host import Host

NAMESPACES = "namespaces"
UP = 120.0
"""Virtual seconds in which everybody knows everybody, and that all others are ready."""
PAUSE = 0.05
"""Virtual seconds between two calls."""


def drawn(seed: int, size: int = 8) -> Network:
    """Draw access lines of 20 to 200 Mbit/s, half of them alike both ways, delays, a slow pair, and perhaps a NAT."""
    rng = random.Random(seed)
    up = tuple(round(20 * 10 ** rng.random()) for _ in range(size))
    down = tuple(rate if rng.random() < 0.5 else round(20 * 10 ** rng.random()) for rate in up)
    places = tuple((40 * rng.random(), 40 * rng.random()) for _ in range(size))
    a, b = rng.sample(range(size), 2)
    pairs = {(a, b): 5.0 + 15 * rng.random()}
    return Network(up, down, places, pairs, (rng.randrange(size),) if rng.random() < 0.5 else ())


def built(world: World, network: Network) -> list[Host]:
    """Put a network into a world; its hosts, one for each cluster."""
    size, delays, bytes_ = len(network.up), network.delays(), 1e6 / 8 * PAYLOAD
    access = {
        f"c{n}": {"up": network.up[n] * bytes_, "down": network.down[n] * bytes_, "nat": n in network.nat}
        for n in range(size)
    }
    return worlds.built(world, access, lambda a, b: (network.pairs.get((a, b), math.inf) * bytes_, delays[a][b] / 1000))


class Mesh:
    """The calls of all peers of a world."""

    def __init__(self, world: World, hosts: list[Host]) -> None:
        self._world = world
        self._hosts = hosts
        self._peers = [host.peer for host in hosts if host.peer is not None]
        self._opened: Open | None = None
        self._peers[0].subscribe(self._notice)
        for peer, host in zip(self._peers, hosts, strict=True):
            assert host.process is not None
            world.loop.perform(functools.partial(host.process.context.run, peer.set_training, True))
        world.run_until(self._ready, within=UP, what="everybody knows that all are ready")

    def call(self, elements: int, within: float) -> tuple[float, plans.Plan, tuple[PeerId, ...], str]:
        """Sum a tensor over all clusters: virtual seconds, the plan, the leaders in order, and why that plan."""
        inputs, outputs = self._world.blank(elements)
        spec = Spec("reduce", "learned", "float32", elements, "sum", "none")
        works = [peer.reduce(Reduction(spec, [inputs], [outputs])) for peer in self._peers]
        took = worlds.together(self._world, list(zip(self._hosts, works, strict=True)), within)
        assert self._opened is not None
        return took, plans.decode(self._opened.plan), tuple(peer.id for peer in self._peers), self._opened.reason

    def _ready(self) -> bool:
        count = len(self._peers)
        return all(sum(card.training for card in p.core.directory.clusters.values()) == count for p in self._peers)

    def _notice(self, notice: Notice) -> None:
        if isinstance(notice, Decided) and isinstance(notice.value, Open):
            self._opened = notice.value


def measure(name: str, megabytes: float, calls: int, settle: float) -> dict[str, Any]:
    """Let the mesh of one network learn, and call."""
    network = Network() if name == NAMESPACES else drawn(int(name))
    elements = int(megabytes * 1e6) // 4
    worked, rows = time.process_time(), []
    with worlds.world(1) as world:
        hosts = built(world, network)
        worlds.met(world, hosts, UP)
        mesh = Mesh(world, hosts)
        world.run_for(settle)
        for _ in range(calls):
            took, made, names, reason = mesh.call(elements, within=3600.0)
            truth = network.request(names, elements)
            bound = planner.plan(truth).plan.bound
            rows.append({
                "price": made.seconds / bound, "needs": fluid(truth, made) / bound, "took": took / bound,
                "kind": made.kind, "shares": len(made.shares), "reason": reason,
            })  # fmt: skip
            world.run_for(PAUSE)
    return {
        "network": name,
        "bound": bound,
        "calls": rows,
        "cpu_seconds": time.process_time() - worked,
    }


def table(found: list[dict[str, Any]]) -> Table:
    """One line for each network, and one column for each call."""
    heads = ("network", "bound, s", *(f"call {n + 1}: price, needs, took" for n in range(len(found[0]["calls"]))))
    lines = tuple(
        (
            each["network"],
            f"{each['bound']:.2f}",
            *(f"{call['price']:.2f} {call['needs']:.2f} {call['took']:.2f}" for call in each["calls"]),
        )
        for each in found
    )
    return Table("Over the certified bound", heads, lines)


def network(text: str) -> str:
    """Take the name of a network, or a seed."""
    if text != NAMESPACES:
        whole(0)(text)
    return text


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--networks", type=network, nargs="+", default=[NAMESPACES, "1", "2", "3"], help=f"{NAMESPACES}, or seeds"
    )
    parser.add_argument("--megabytes", type=megabytes, default=20.0, help="of the tensor")
    parser.add_argument("--calls", type=count, default=6)
    parser.add_argument("--settle", type=seconds, default=20.0, help="virtual seconds for the first probes")
    parser.add_argument("--json", type=output, metavar="FILE", help="append the results, one object per line")
    options = parser.parse_args()
    found = []
    for name in options.networks:
        found.append(measure(name, options.megabytes, options.calls, options.settle))
        worlds.told(found[-1], options.json)
    show([table(found)], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
