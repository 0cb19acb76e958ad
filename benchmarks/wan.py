"""All-reduce over shaped links: ours (sealed) and its codecs, in turn with torch's Gloo, and what the plan allows.

    python benchmarks/wan.py --json wan.json
    python benchmarks/wan.py --only "100 Mbit/s, 100 ms" --mb 30 --repeat 5

Each rank is a process in a network namespace of its own; `emulator` gives the lines between them their rates, delays
and losses. The first turn of each contender opens its connections and counts for nothing: the others find them warm.

*Bound* is the plan's: the bytes that the busiest line has to carry, over its rate, without the headers of TCP, IP and
Ethernet. No time is allowed for the way, so at 100 ms a short transfer cannot reach it; *with the way* adds one delay,
which the last byte needs whatever the schedule. Needs root, on Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import arena
import pattern
import torch
import torch.distributed as dist
import uvloop
from arguments import count, megabytes, output, seconds
from emulator import DEVICE, PAYLOAD, Emulator, enter, renounce, require_root
from streams import PORT, Streams

from ictp2p.bulk import Bulk, BulkProfile
from ictp2p.collectives.plan import Plan
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, plan
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.types import PeerId

CODECS = ("none", "bfloat16", "int8")
GLOO = "gloo"
PACED = "paced"
"""float32, each connection held near its planned rate (`ExecuteProfile.pace`)."""
LINE = "line"
"""Plain TCP, one connection with bbr, as many bytes each way: what the line itself gives. For two ranks."""
PAIR = (*CODECS, PACED, GLOO, LINE)
FAR = BulkProfile(stall=15.0, handshake=2.0, patience=3.0, high_water=4 * 1024 * 1024)
"""For ways of 100 ms and more."""
PATIENCE = 120.0
"""Seconds that a rank waits for the others between turns."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One network, and who reduces over it. Rates in Mbit/s, one-way delays in milliseconds."""

    name: str
    up: tuple[float, ...]
    down: tuple[float, ...] = ()
    delay: float | tuple[tuple[float, ...], ...] = 0.0
    loss: float = 0.0
    mb: float = 20.0
    cut: tuple[tuple[int, int], ...] = ()
    """Pairs that cannot reach each other."""
    relay: int | None = None
    """The node that they are relayed by, and that takes no other part."""
    contenders: tuple[str, ...] = (*CODECS, GLOO)

    def emulator(self) -> Emulator:
        """Make the network. Single losses need single packets, which cost a core at a Gbit/s."""
        return Emulator(self.up, self.down or None, self.delay, loss=self.loss, offload=not self.loss)

    def ranks(self) -> list[int]:
        """Give the nodes that reduce."""
        return [n for n in range(len(self.up)) if n != self.relay]

    def one_way(self, a: int, b: int) -> float:
        """Give the seconds from one node to another, over the relay if they need it."""
        if self.relay is not None and ((a, b) in self.cut or (b, a) in self.cut):
            return self.one_way(a, self.relay) + self.one_way(self.relay, b)
        return (self.delay if isinstance(self.delay, int | float) else self.delay[a][b]) / 1000


@dataclass(frozen=True, slots=True)
class How:
    """How a scene is run."""

    repeat: int
    """Measurements of each contender."""
    rest: float
    """Seconds of silence before each of them."""
    stripes: bool
    """Whether a way is striped that gains by it."""
    privileged: bool
    """Whether buffers may be larger than the host's limit."""


SCENES = (
    Scene("100 Mbit/s", (100, 100), contenders=PAIR),
    Scene("100 Mbit/s, 20 ms", (100, 100), delay=10, contenders=PAIR),
    Scene("100 Mbit/s, 100 ms", (100, 100), delay=50, contenders=PAIR),
    Scene("100 Mbit/s, 20 ms, 0.1 % loss", (100, 100), delay=10, loss=0.001, contenders=PAIR),
    Scene("100 Mbit/s, 100 ms, 0.1 % loss", (100, 100), delay=50, loss=0.001, contenders=PAIR),
    Scene("100/20 Mbit/s, 20 ms", (100, 100, 20), (100, 100, 100), delay=10, mb=10),
    Scene("1 Gbit/s", (1000, 1000), mb=100, contenders=PAIR),
    Scene("1 Gbit/s, 20 ms", (1000, 1000), delay=10, mb=100, contenders=PAIR),
    Scene("1 Gbit/s, 100 ms", (1000, 1000), delay=50, mb=100, contenders=PAIR),
    Scene("relayed, 100 Mbit/s, 20 ms", (100, 100, 100), delay=10, mb=10, cut=((1, 2),), relay=0, contenders=CODECS),
)


def main() -> None:
    """Measure every scene; print, and perhaps save, its rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [scene.name for scene in SCENES]
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="SCENE", help=f"of these: {'; '.join(names)}".replace("%", "%%")
    )
    parser.add_argument("--mb", type=megabytes, help="tensor size in MB (1e6 bytes), instead of the scene's own")
    parser.add_argument("--repeat", type=count, default=3, help="measurements of each contender")
    parser.add_argument("--rest", type=seconds, default=0.0, help="seconds of silence before each turn")
    parser.add_argument("--contenders", nargs="+", choices=PAIR, help="instead of the scene's own; a line is for two")
    parser.add_argument("--no-stripes", action="store_true", help="one connection between any two, whatever they gain")
    parser.add_argument(
        "--unprivileged", action="store_true", help="do without CAP_NET_ADMIN, which buffers beyond the host's take"
    )
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    require_root(parser)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    how = How(options.repeat, options.rest, not options.no_stripes, not options.unprivileged)
    rows = []
    for scene in SCENES:
        if options.only and scene.name not in options.only:
            continue
        chosen = replace(scene, mb=options.mb or scene.mb, contenders=contenders(scene, options.contenders))
        row = measure(chosen, how)
        rows.append(row)
        show(row)
        if options.json:
            options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


def contenders(scene: Scene, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Say who runs over a scene: its own, or those that are asked for and can."""
    return tuple(name for name in asked or scene.contenders if name != LINE or len(scene.up) == 2)


def measure(scene: Scene, how: How) -> dict[str, Any]:
    """Run all contenders over one network and summarize."""
    with scene.emulator() as network:
        collected = processes(scene, network, how)
        stats = network.stats()
    found = arena.summary([each for each in collected if each], scene.mb * 1e6)
    names = [PeerId(f"{n:032x}") for n in range(len(scene.up))]
    bound = planned(scene, names, "none").bound
    way = min(scene.one_way(a, b) for a in scene.ranks() for b in scene.ranks() if a != b)
    for each in found.values():
        each["share"] = bound / each["seconds"]
        each["share_with_the_way"] = (bound + way) / each["seconds"]
    return {"scene": scene.name, "mb": scene.mb, "bound_seconds": bound, "contenders": found, "network": stats}


def show(row: dict[str, Any]) -> None:
    """Print one scene's rows."""
    print(f"{row['scene']}, {row['mb']:g} MB, bound {row['bound_seconds']:.3f} s", flush=True)
    plain = row["contenders"].get("none")
    for name, each in row["contenders"].items():
        shares = f"{each['share']:6.3f} of the bound, {each['share_with_the_way']:6.3f} with the way"
        against = f", {plain['seconds'] / each['seconds']:5.2f}x float32" if plain and name != "none" else ""
        label = "sealed float32" if name == "none" else name
        print(f"  {label:15} {each['seconds']:7.3f} s {shares}, {each['cpu_seconds_per_gb']:6.2f} CPU s/GB{against}")


def planned(scene: Scene, names: Sequence[PeerId], codec: str) -> Plan:
    """Plan for the lines as they are, as if everything had been measured."""
    ranks = scene.ranks()
    up, down = ([mbit * 1e6 / 8 * PAYLOAD for mbit in rates] for rates in (scene.up, scene.down or scene.up))

    def link(a: int, b: int) -> LinkEstimate:
        if scene.relay is None or not {(a, b), (b, a)} & set(scene.cut):
            return LinkEstimate(min(up[a], down[b]), scene.one_way(a, b))
        relay = scene.relay
        rate = min(up[a], down[relay], up[relay], down[b])
        return LinkEstimate(rate, scene.one_way(a, b), via=names[relay])

    request = PlanRequest(
        tuple(names[n] for n in ranks),
        int(scene.mb * 1e6 / 4),
        4,
        {(names[a], names[b]): link(a, b) for a in ranks for b in ranks if a != b},
        up={names[n]: up[n] for n in range(len(names))},
        down={names[n]: down[n] for n in range(len(names))},
        codec=codec,
    )
    return plan(request).plan


class Node(arena.Rank):
    """One process, in its namespace."""

    def __init__(self, number: int, hosts: list[str], file: str) -> None:
        self._file = file
        super().__init__(number, len(hosts), 0)
        self.hosts, self.device = hosts, DEVICE

    def _store(self, port: int) -> Any:
        return dist.FileStore(self._file, self.ranks)  # namespaces share the disk


def processes(scene: Scene, network: Emulator, how: How) -> list[Any]:
    """Run one process for each node; give what each measured, None for the relay."""
    context = multiprocessing.get_context("spawn")
    results, barrier = context.Queue(), context.Barrier(network.nodes)
    hosts = [network.address(node) for node in range(network.nodes)]
    with tempfile.TemporaryDirectory() as directory:
        workers = [
            context.Process(
                target=be,
                args=(scene, node, path, hosts, f"{directory}/store", how, barrier, results),
                daemon=True,
            )
            for node, path in enumerate(network.paths())
        ]
        try:
            for process in workers:
                process.start()
            for a, b in scene.cut:
                network.tell(f"cut {a} {b}")
            collected = dict(results.get(timeout=3600) for _ in workers)
        finally:
            for process in workers:
                process.kill()
                process.join()
    return [collected[node] for node in range(network.nodes)]


def be(
    scene: Scene,
    number: int,
    path: str,
    hosts: list[str],
    file: str,
    how: How,
    barrier: Any,
    results: Any,
) -> None:
    """Be one node."""
    enter(path)
    if not how.privileged:
        renounce()
    torch.set_num_threads(1)
    try:
        results.put((number, uvloop.run(worker(scene, Node(number, hosts, file), how, barrier))))
    except BaseException as error:
        results.put((number, RuntimeError(f"node {number}: {error!r}")))
        barrier.abort()
        raise
    barrier.wait(PATIENCE)  # a queue's thread still has to write, and others to read


async def worker(scene: Scene, node: Node, how: How, barrier: Any) -> dict[str, list[arena.Turn]] | None:
    """Measure all contenders in turn, or relay."""
    relays = [] if scene.relay is None else [node.names[scene.relay]]
    profile = replace(FAR, stripes=how.stripes)
    bulk = await node.bulk("sealed", sealed=True, profile=profile, relays=lambda _: relays)
    node.agree("listening")
    if node.number == scene.relay:
        return await relay(scene, how.repeat, barrier, bulk)
    elements, ranks = int(scene.mb * 1e6 / 4), scene.ranks()
    if scene.relay is None:
        await probe(node, bulk)
    source, output = pattern.brought(node.number, elements, pattern.BLOCK), torch.zeros(elements)
    contenders: dict[str, arena.Contender] = {}
    for name in scene.contenders:
        if name == GLOO:
            group = node.gloo()

            async def theirs(turn: int, group: Any = group) -> None:
                await asyncio.to_thread(group.allreduce([output]).wait)

            contenders[name] = theirs
        elif name == LINE:
            contenders[name] = plain(node, scene)
        else:
            pace = name == PACED
            chosen = planned(scene, node.names, "none" if pace else name)

            async def ours(turn: int, chosen: Plan = chosen, pace: bool = pace) -> None:
                await node.reduce(chosen, [source], [output], bulk, 2 * turn + pace, pace=pace)

            contenders[name] = ours

    def check(name: str) -> None:
        if name != LINE:
            pattern.verify(output, ranks, name, row=pattern.BLOCK, slack=0.01 if name in CODECS[1:] else 0.0)

    return await arena.take_turns(
        lambda: barrier.wait(PATIENCE),
        contenders,
        lambda name: (output.copy_(source), None)[1] if name == GLOO else (output.fill_(0), None)[1],
        check,
        how.repeat,
        how.rest,
    )


async def probe(node: Node, bulk: Bulk) -> None:
    """Measure all ways, one after the other, as the members of a mesh do before their first round."""
    for number, name in enumerate(node.names):
        for other in node.names if number == node.number else ():
            if other != name:
                await bulk.probe(other, LinkProfile().probe_bytes, timeout=30.0)
        await asyncio.to_thread(node.agree, f"probed by {number}")  # our loop still answers others


def plain(node: Node, scene: Scene) -> arena.Contender:
    """Make the transfer that says what the line gives."""
    host, size = node.hosts[0], int(scene.mb * 1e6)
    streams = Streams(node.number == 0, host, PORT, 1, "bbr" if scene.one_way(0, 1) else None)

    async def line(turn: int) -> None:
        await asyncio.to_thread(streams.exchange, size)

    return line


async def relay(scene: Scene, repeat: int, barrier: Any, bulk: Bulk) -> None:
    """Carry what others send each other until they have ended."""
    for _ in range((repeat + 1) * len(scene.contenders)):
        await asyncio.to_thread(barrier.wait, PATIENCE)
    await asyncio.to_thread(barrier.wait, PATIENCE)  # the ranks' last one
    del bulk


if __name__ == "__main__":
    main()
