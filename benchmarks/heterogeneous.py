"""Eight clusters far apart, each behind another line: real peers that measure, plan and reduce, against the bound.

    python benchmarks/heterogeneous.py --json heterogeneous.json --plot heterogeneous.svg

Eight processes in network namespaces of their own: access lines of 30 to 100 Mbit/s, round trips of 10 to 80 ms, one
cluster with a slow line, one pair of clusters with a slow line between them, and one cluster behind a NAT, to which
nobody can open a connection. `emulator` gives the network.

- *mesh*: `Peer.all_reduce`, as a program calls it: sealed, by what the peers have measured of their links, with all of
  the agreement around it. `--warm` calls go before, which count for nothing, and are told one by one: so many rounds
  does it take to learn the network.
- *known*: the plan for the lines as they are, on the data plane alone: what better measurements would give.
- *paced*: the same, each connection held near its planned rate (`ExecuteProfile.pace`).
- *ring*: the best ring on the lines as they are, on the data plane alone.
- *gloo*: torch's ring.

The *bound* is certified (`planning.bounds`) for the lines as they are, less the headers of TCP, IP and Ethernet; it
allows no time for ways. Of each plan that the mesh agreed on it is told what the planner thought that it would take,
and what it should take on the lines as they are: apart, these show whether a link was measured wrongly or a plan was
carried out badly. Needs root, on Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import arena
import pattern
import torch
import uvloop
from arguments import count, megabytes, output, seconds, whole
from emulator import PAYLOAD, Emulator, enter, require_root
from wan import FAR, GLOO, PATIENCE, Node

import ictp2p
from ictp2p.collectives import plan as plans
from ictp2p.collectives.planning import planner
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.machine import Notice
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.values import Close, Open
from ictp2p.types import PeerId

TOKEN = "benchmark-of-a-heterogeneous-network"
HUSH = 15.0
"""Seconds in which the mesh does not probe, once another contender's turn has begun."""
PORT = 7450
MESH, KNOWN, PACED, RING = "mesh", "known", "paced", "ring"
CONTENDERS = (MESH, KNOWN, PACED, RING, GLOO)


@dataclass(frozen=True, slots=True)
class Network:
    """Rates in Mbit/s, places on a map in milliseconds one way."""

    up: tuple[float, ...] = (100, 100, 80, 80, 60, 60, 30, 50)
    down: tuple[float, ...] = (100, 100, 80, 80, 60, 100, 30, 80)
    places: tuple[tuple[float, float], ...] = ((0, 0), (4, 3), (0, 20), (5, 22), (22, 4), (26, 1), (33, 20), (12, 12))
    """A delay is the distance, at least 5: so ways obey the triangle inequality."""
    pairs: dict[tuple[int, int], float] = field(default_factory=lambda: {(2, 4): 5.0, (4, 2): 5.0})
    """Lines of their own between two."""
    nat: tuple[int, ...] = (7,)

    def delays(self) -> list[list[float]]:
        """Give the one-way delays in milliseconds."""
        return [[0.0 if a == b else max(5.0, math.dist(a, b)) for b in self.places] for a in self.places]

    def request(self, names: tuple[PeerId, ...], elements: int, only: str | None = None) -> PlanRequest:
        """Ask for a plan on the lines as they are."""
        up, down = ([mbit * 1e6 / 8 * PAYLOAD for mbit in rates] for rates in (self.up, self.down))
        delays, links = self.delays(), {}
        for a, source in enumerate(names):
            for b, target in enumerate(names):
                if a != b:
                    own = self.pairs.get((a, b), math.inf) * 1e6 / 8 * PAYLOAD
                    links[source, target] = LinkEstimate(min(up[a], down[b], own), delays[a][b] / 1000)
        return PlanRequest(
            names, elements, 4, links, dict(zip(names, up, strict=True)), dict(zip(names, down, strict=True)), only=only
        )


@dataclass(frozen=True, slots=True)
class Round:
    """One call of the mesh, at one participant."""

    seconds: float
    cpu: float
    plan: bytes
    reason: str
    leaders: tuple[str, ...]
    """In the order of the clusters."""
    given_up: tuple[str, ...]
    """Why attempts before this plan's were given up."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one process measured."""

    turns: dict[str, list[arena.Turn]]
    rounds: list[Round]
    links: list[dict[str, Any]]


def main() -> None:
    """Measure; print, and perhaps save and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mb", type=megabytes, default=20.0, help="tensor size in MB (1e6 bytes)")
    parser.add_argument("--warm", type=whole(0), default=6, help="calls of the mesh before any counts")
    parser.add_argument("--settle", type=seconds, default=30.0, help="seconds for the first probes, before any call")
    parser.add_argument("--repeat", type=count, default=5, help="measurements of each contender")
    parser.add_argument("--rest", type=seconds, default=0.0, help="seconds of silence before each turn")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--json", type=output, help="file to write the results to")
    parser.add_argument("--plot", type=output, help="file to draw them in")
    options = parser.parse_args()
    require_root(parser)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = measure(Network(), options)
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.plot:
        plot(result, options.plot)


def measure(network: Network, options: argparse.Namespace) -> dict[str, Any]:
    """Run all contenders and summarize."""
    load = os.getloadavg()[0]
    with Emulator(network.up, network.down, network.delays(), pairs=network.pairs, nat=network.nat) as wires:
        collected = processes(network, wires, options)
        stats = wires.stats()
    size = options.mb * 1e6
    names = tuple(PeerId(f"{n:032x}") for n in range(len(network.up)))
    best = planner.plan(network.request(names, int(size / 4))).plan
    contenders = arena.summary([found.turns for found in collected], size)
    for each in contenders.values():
        each["over_bound"] = each["seconds"] / best.bound
    calls = [told(network, each, int(size / 4)) for each in zip(*(found.rounds for found in collected), strict=True)]
    return {
        "mb": options.mb,
        "bound_seconds": best.bound,
        "planned_seconds": {
            KNOWN: best.seconds,
            RING: planner.plan(network.request(names, int(size / 4), "ring")).plan.seconds,
        },
        "contenders": contenders,
        "calls": calls,
        "warm": options.warm,
        "links": compared(network, collected[0].links),
        "load_before": load,
        "network": stats,
    }


def told(network: Network, each: tuple[Round, ...], elements: int) -> dict[str, Any]:
    """Tell of one call of the mesh: what it took, what was predicted of it, and what it should take in truth."""
    chosen = plans.decode(each[0].plan)
    leaders = tuple(map(PeerId, each[0].leaders))
    truth = replace(network.request(leaders, elements), participants=tuple(map(PeerId, chosen.participants)))
    return {
        "seconds": max(one.seconds for one in each),
        "cpu_seconds": sum(one.cpu for one in each),
        "predicted": chosen.seconds,
        "predicted_on_the_lines": planner.predict(truth, chosen),
        "fluid_on_the_lines": fluid(truth, chosen),
        "kind": chosen.kind,
        "shares": len(chosen.shares),
        "trees": trees(chosen, each[0].leaders),
        "reason": each[0].reason,
        "given_up": each[0].given_up,
    }


def trees(chosen: plans.Plan, leaders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Say of each share which cluster is its root, and whom each cluster sends to, and gets the result from."""
    number = {index: leaders.index(name) for index, name in enumerate(chosen.participants)}

    def parents(found: Sequence[int]) -> dict[int, int]:
        return {number[a]: number[b] for a, b in enumerate(found) if b in number}

    return [
        {
            "part": (share.stop - share.start) / max(1, chosen.elements),
            "root": number[share.root],
            "sums_to": parents(share.reduce_parents),
            "copies_from": parents(share.broadcast_parents),
        }
        for share in chosen.shares
    ]


def fluid(truth: PlanRequest, chosen: plans.Plan) -> float:
    """Give the seconds of the most loaded line for the bytes that a plan puts on it."""
    up, down = (dict.fromkeys(chosen.participants, 0.0) for _ in "ud")
    pairs: dict[tuple[str, str], float] = {}
    for share in chosen.shares:
        tree = Tree(share.root, share.reduce_parents, share.broadcast_parents)
        for a, b in tree.edges():
            source, target = chosen.participants[a], chosen.participants[b]
            size = (share.stop - share.start) * truth.itemsize
            up[source] += size
            down[target] += size
            pairs[source, target] = pairs.get((source, target), 0.0) + size
    return max(
        max(up[name] / truth.up[PeerId(name)] for name in up),
        max(down[name] / truth.down[PeerId(name)] for name in down),
        max(size / (truth.links[PeerId(a), PeerId(b)].bandwidth or math.inf) for (a, b), size in pairs.items()),
    )


def compared(network: Network, links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put what the mesh measured of each link beside what it is: Mbit/s of payload, and milliseconds of round trip."""
    rows = []
    for link in links:
        a, b = (int(link[end][1:]) for end in ("from", "to"))
        line = min(network.up[a], network.down[b], network.pairs.get((a, b), math.inf)) * PAYLOAD
        rows.append(
            {
                "from": a,
                "to": b,
                "measured": (link["bandwidth_out"] or 0.0) * 8 / 1e6,
                "line": line,
                "round_trip": (link["round_trip"] or 0.0) * 1000,
                "way": 2 * network.delays()[a][b],
            }
        )
    return rows


def show(result: dict[str, Any]) -> None:
    """Print everything."""
    for number, call in enumerate(result["calls"]):
        print(
            f"call {number + 1:2}: {call['seconds']:6.2f} s, predicted {call['predicted']:6.2f}, on the lines as they "
            f"are {call['predicted_on_the_lines']:6.2f} (bytes alone {call['fluid_on_the_lines']:6.2f}); "
            f"{call['kind']} of {call['shares']}, {call['cpu_seconds']:.2f} CPU s"
            + "".join(f"; given up: {why}" for why in call["given_up"])
        )
    print(f"last reason: {result['calls'][-1]['reason']}" if result["calls"] else "no calls")
    print(f"{result['mb']:g} MB, bound {result['bound_seconds']:.3f} s, planned {result['planned_seconds']}")
    for name, each in result["contenders"].items():
        print(
            f"  {name:6} {each['seconds']:7.3f} s {each['over_bound']:6.3f} of the bound, "
            f"{each['cpu_seconds_per_gb']:6.2f} CPU s/GB"
        )
    print(f"load before {result['load_before']:.2f}, network {result['network']}", flush=True)


def processes(network: Network, wires: Emulator, options: argparse.Namespace) -> list[Found]:
    """Run one process for each node; give what each measured."""
    context = multiprocessing.get_context("spawn")
    results, barrier = context.Queue(), context.Barrier(wires.nodes)
    hosts = [wires.address(node) for node in range(wires.nodes)]
    with tempfile.TemporaryDirectory() as directory:
        workers = [
            context.Process(
                target=be,
                args=(network, node, path, hosts, f"{directory}/store", options, barrier, results),
                daemon=True,
            )
            for node, path in enumerate(wires.paths())
        ]
        try:
            for process in workers:
                process.start()
            collected = dict(results.get(timeout=1800) for _ in workers)
        finally:
            for process in workers:
                process.kill()
                process.join()
    if failed := [each for each in collected.values() if isinstance(each, BaseException)]:
        raise failed[0]
    return [collected[node] for node in range(wires.nodes)]


def be(
    network: Network,
    number: int,
    path: str,
    hosts: list[str],
    file: str,
    options: argparse.Namespace,
    barrier: Any,
    results: Any,
) -> None:
    """Be one node."""
    enter(path)
    torch.set_num_threads(1)
    config = ictp2p.Config.wan(
        cluster=f"c{number}",
        token=TOKEN,
        listen=f"{hosts[number]}:{PORT}",
        advertise="none" if number in network.nat else "",
        join=(f"{hosts[0]}:{PORT}",) if number else (),
    )
    try:
        node = Node(number, hosts, file)
        barrier.wait(PATIENCE)
        if number:
            node.store.wait(["founded"])
        with ictp2p.Peer(config) as peer:
            node.store.set("founded", "")
            results.put((number, uvloop.run(worker(network, node, peer, options, barrier))))
            barrier.wait(PATIENCE)  # a queue's thread still has to write, and others to read
    except BaseException as error:
        results.put((number, RuntimeError(f"node {number}: {error!r}")))
        barrier.abort()
        raise


async def worker(network: Network, node: Node, peer: ictp2p.Peer, options: argparse.Namespace, barrier: Any) -> Found:
    """Let the mesh learn, then measure all contenders in turn."""
    elements = int(options.mb * 1e6 / 4)
    source, output = pattern.brought(node.number, elements), torch.zeros(elements)
    mesh = Mesh(peer, node.ranks)
    await asyncio.to_thread(peer.gather, node.ranks, 60.0)
    await asyncio.sleep(options.settle)

    def meet() -> None:
        barrier.wait(PATIENCE)

    def check(name: str) -> None:
        pattern.verify(output, range(node.ranks), name)

    async def call(turn: int) -> None:
        await asyncio.to_thread(mesh.call, output)

    for turn in range(options.warm):
        output.copy_(source)
        await asyncio.to_thread(meet)
        await call(turn)
        check(MESH)
    bulk = await node.bulk("sealed", sealed=True, profile=replace(FAR, patience=0.5))
    node.agree("listening")
    contenders: dict[str, arena.Contender] = {}
    for name in options.contenders:
        if name == MESH:
            contenders[name] = call
        elif name == GLOO:
            contenders[name] = _theirs(node.gloo(), output)
        else:
            only = "ring" if name == RING else None
            chosen = planner.plan(network.request(tuple(node.names), elements, only)).plan
            contenders[name] = _ours(node, chosen, source, output, bulk, pace=name == PACED)

    def prepare(name: str) -> None:
        if name != MESH:
            mesh.hush()
        if name in (MESH, GLOO):
            output.copy_(source)
        else:
            output.fill_(0)

    turns = await arena.take_turns(meet, contenders, prepare, check, options.repeat, options.rest)
    return Found(turns, mesh.rounds, peer.links)


def _ours(
    node: Node, chosen: plans.Plan, source: torch.Tensor, output: torch.Tensor, bulk: Any, *, pace: bool
) -> arena.Contender:
    async def ours(turn: int) -> None:
        await node.reduce(chosen, [source], [output], bulk, 2 * turn + pace, pace=pace)

    return ours


def _theirs(group: Any, output: torch.Tensor) -> arena.Contender:
    async def theirs(turn: int) -> None:
        await asyncio.to_thread(group.allreduce([output]).wait)

    return theirs


class Mesh:
    """The calls of one peer, and the plans that were agreed for them."""

    def __init__(self, peer: ictp2p.Peer, clusters: int) -> None:
        self._peer = peer
        self._clusters = clusters
        self._opened: Open | None = None
        self._given_up: list[str] = []
        self.rounds: list[Round] = []
        peer._running.subscribe(self._notice)

    def call(self, tensor: torch.Tensor) -> None:
        """Sum `tensor` over all clusters."""
        began, cpu = time.perf_counter(), time.process_time()
        done = self._peer.all_reduce(tensor, op="sum")
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert len(done.clusters) == self._clusters, done
        opened = self._opened
        assert opened is not None
        leaders = {int(re.sub(r"\D", "", p.cluster)): p.leader for p in opened.participants}
        ordered = tuple(leader for _, leader in sorted(leaders.items()))
        given_up, self._given_up = tuple(self._given_up), []
        self.rounds.append(Round(seconds, cpu, opened.plan, opened.reason, ordered, given_up))

    def hush(self) -> None:
        """Have the peer probe nothing while another contender has the lines: its turns took up to a half longer."""
        running: Any = self._peer._running

        async def reserve() -> None:
            running._peer._reserve(HUSH)

        running.loop.submit(reserve).result(PATIENCE)

    def _notice(self, notice: Notice) -> None:
        match notice:
            case Decided(value=Open() as opened):
                self._opened = opened
            case Decided(value=Close(committed=False, reason=reason)):
                self._given_up.append(reason)


def plot(result: dict[str, Any], file: Path) -> None:
    """Draw each contender's time over the bound, and how the mesh came to its own."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ictp2p"  # the same figures are the same file, with no date in it either
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5))
    bound = result["bound_seconds"]
    numbers = range(1, len(result["calls"]) + 1)
    left.plot(numbers, [call["seconds"] / bound for call in result["calls"]], "o-", label="took")
    for key, label in (("predicted", "predicted"), ("predicted_on_the_lines", "predicted on the lines as they are")):
        left.plot(numbers, [call[key] / bound for call in result["calls"]], "x--", label=label, linewidth=0.8)
    left.axhline(1.0, color="black", linewidth=0.8)
    left.set(xlabel="call of the mesh", ylabel="time over the certified bound", ylim=(0, None))
    left.legend(fontsize=8, loc="lower right")
    names = list(result["contenders"])
    right.bar(names, [result["contenders"][name]["over_bound"] for name in names])
    right.axhline(1.0, color="black", linewidth=0.8)
    right.set(ylabel="time over the certified bound")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
