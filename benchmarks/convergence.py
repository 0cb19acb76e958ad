"""How long a mesh takes to find itself after a failure: measured on the real peers in virtual time, beside the bounds.

    python benchmarks/convergence.py control rounds lossy --clusters 4 16 64 --seeds 100 --json runs/convergence.jsonl
    python benchmarks/convergence.py --json runs/convergence.jsonl --plot docs/convergence.svg

All worlds are in the WAN profile: one worker per cluster, two in one of them, 10 to 80 ms one way between every two
clusters, 2 ms of jitter. What happens to them, happens at a random moment after they have settled:

- `control`: first the path between two clusters goes dark (nothing is reset: both must find out); then the leader of
  the cluster of two loses its power; then a whole cluster does. Nobody trains.
- `rounds`: a small model is trained all along. The leader of the cluster of two loses its power just after a round was
  opened; then a whole cluster does, at any moment.
- `lossy`: every link loses a tenth of its segments for minutes; nobody dies in them, and deaths and suspicions are
  counted; then a whole cluster loses its power, while the loss goes on.

Rows are appended to the file as they are measured, one JSON object per line, and a run that is in it already is not
done again: an interrupted campaign goes on where it was. The table shows all that the file holds.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import convergence_bounds as bounds
import numpy as np
import torch
from arguments import count, output, positive, whole
from convergence_bounds import COMPUTE, FARTHEST, NEAREST

from ictp2p.core.commands import MemberChanged
from ictp2p.machine import Notice
from ictp2p.routing.babel import RouteChanged
from ictp2p.tables import Table, show
from sim.faults import Crash, Cut, Heal, KillLeader
from sim.host import Host
from sim.world import World

N = TypeVar("N", bound=Notice)
JITTER = 0.002
"""Seconds that each message takes longer, on average, at random."""
WARM = 20.0
"""Seconds of a world's life before the first fault at least: the first hellos and probes are over."""
CALM = 10.0
"""Seconds within which each fault falls at random, once the mesh has settled."""
REST = 24.0
"""Seconds without any change after which routing tables are at rest: more than the longest timer that could still
change one, a dump (16 s) and its answers."""
PATIENCE = 300.0
"""Virtual seconds to wait for anything before the run counts as failed."""
STEP = 0.05
"""Virtual seconds between two looks: what is measured is rounded up by this much at most."""
LOSS, LOSSY = 0.1, 300.0
"""Share of the segments that is lost, and virtual seconds for which."""
PAIR, FIRST, LAST = "c001", "c002", "c003"
"""The cluster of two workers, and those between which the path goes dark; the last of them dies in the end."""


# ---------------------------------------------------------------- what is measured


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of the table."""

    kind: str
    key: str
    title: str
    bound: Callable[[int, float], float]
    """Seconds, of the number of clusters and the quantile."""


MEASURES = (
    Measure("control", "known", "crash known by all", bounds.crash_known),
    Measure("control", "leader", "new leader known by all", bounds.leader_known),
    Measure("control", "routed", "every pair has a working route", bounds.routed),
    Measure("control", "rest", "routing tables at rest", bounds.at_rest),
    Measure("control", "unrouted", "no route to a dead cluster", bounds.unrouted),
    Measure("rounds", "leader", "next commit: leader dies in a round", bounds.committed),
    Measure("rounds", "crash", "next commit: cluster dies at any time", bounds.committed_after_crash),
)


# ---------------------------------------------------------------- the worlds


def built(clusters: int, seed: int, *, train: bool, loss: float = 0.0) -> World:
    """A world, still to be run."""
    world = World(seed, profile="wan")
    world.links(jitter=JITTER)
    names = [f"c{n:03}" for n in range(clusters)]
    for name in names:
        world.cluster(name, workers=2 if name == PAIR else 1, compute=COMPUTE, train=train)
    for a, b in itertools.combinations(names, 2):
        delay = NEAREST + (FARTHEST - NEAREST) * world.chance.uniform("delay", a, b)
        world.link(a, b, delay=delay, loss=loss)
    world.link(FIRST, LAST, delay=NEAREST)  # no relay is faster, so that the path which will go dark is in use
    return world


def settle(world: World, key: str) -> None:
    """Wait until all is well, and for a random while more."""
    names = list(world.clusters)
    trains = any(cluster.workload is not None for cluster in world.clusters.values())
    well = world.settled if trains else world.believes_all
    world.run_until(lambda: well() and works(world, names), PATIENCE, step=0.5, what="the mesh has settled")
    world.run_for(max(0.0, WARM - world.now) + CALM * world.chance.uniform("moment", key))


def control(clusters: int, seed: int) -> dict[str, float]:
    """Measure what needs no training."""
    with built(clusters, seed, train=False) as world:
        return {**path_dark(world), **leader_dies(world), **cluster_dies(world), "virtual": world.now}


def path_dark(world: World) -> dict[str, float]:
    """The path between two clusters goes dark. Only what had used it is watched: jitter alone moves routes too."""
    settle(world, "cut")
    names, changes = list(world.clusters), [0.0]
    used = {(host.name, *key) for host in world.running() if host.leads for key in through(world, host)}

    def changed(host: str, notice: RouteChanged) -> None:
        if (host, notice.destination, notice.traffic_class) in used:
            changes.append(world.now)

    silence = [listen(host, RouteChanged, changed) for host in world.running()]
    world.inject(Cut(FIRST, LAST))
    cut = world.now
    world.run_until(lambda: works(world, names), PATIENCE, step=STEP, what="every pair has a working route")
    working = world.now - cut
    world.run_until(lambda: world.now - changes[-1] >= REST, PATIENCE, step=1.0, what="routing tables are at rest")
    for stop in silence:
        stop()
    world.inject(Heal())
    return {"routed": working, "rest": max(working, changes[-1] - cut)}


def through(world: World, host: Host) -> Iterator[tuple[str, int]]:
    """The destinations and classes that a leader reaches over the path that will go dark."""
    leaders = {cluster: world.hosts[name].core for cluster, name in world.leaders().items()}
    for route in host.core.m.routes.routes() if host.core is not None else ():
        at, way = host.cluster, [host.cluster]
        while at != route.destination and len(way) <= len(leaders):
            hop = leaders[at].m.routes.next_hop(route.destination, route.traffic_class) if at in leaders else None
            if hop is None:
                break
            at = hop
            way.append(at)
        if any({x, y} == {FIRST, LAST} for x, y in itertools.pairwise(way)):
            yield route.destination, route.traffic_class


def leader_dies(world: World) -> dict[str, float]:
    """The leader of the cluster of two loses its power."""
    settle(world, "leader")
    heir = next(host for host in world.of(PAIR) if not host.leads)
    world.inject(KillLeader(PAIR, power=True))
    return {"leader": world.run_until(lambda: all_name(world, heir.id), PATIENCE, step=STEP, what="all know the heir")}


def cluster_dies(world: World) -> dict[str, float]:
    """A whole cluster loses its power."""
    settle(world, "crash")
    for host in world.of(LAST):
        world.inject(Crash(host.name, power=True))
    known = world.run_until(lambda: all_know(world, LAST), PATIENCE, step=STEP, what="all know of the crash")
    more = world.run_until(lambda: not routed(world, LAST), PATIENCE, step=STEP, what="no route leads to the dead")
    return {"known": known, "unrouted": known + more}


def rounds(clusters: int, seed: int) -> dict[str, float]:
    """Measure how long a mesh that trains goes without a commit."""
    with built(clusters, seed, train=True) as world:
        opened: list[float] = []
        settle(world, "leader")
        world.trace.subscribers.append(lambda entry: opened.append(entry.at) if entry.kind == "round_opened" else None)
        world.run_until(lambda: opened, PATIENCE, step=0.01, what="a round opens")
        world.inject(KillLeader(PAIR, power=True))
        leader = next_commit(world)
        settle(world, "crash")
        for host in world.of(LAST):
            world.inject(Crash(host.name, power=True))
        return {"leader": leader, "crash": next_commit(world), "virtual": world.now}


def next_commit(world: World) -> float:
    """Seconds to the next version of the state."""
    since, version = world.now, world.version()
    world.run_until(lambda: world.version() > version, PATIENCE, step=STEP, what="a round commits")
    return world.commits()[-1].at - since


def all_name(world: World, leader: str | None) -> bool:
    """Whether every running peer takes this one for the leader of the cluster of two."""
    cores = [host.core for host in world.running()]
    return all(core is not None and core.directory.leader_of(PAIR) == leader for core in cores)


def all_know(world: World, cluster: str) -> bool:
    """Whether every other leader takes a cluster for dead."""
    others = [leader for of, leader in world.leaders().items() if of != cluster]
    return all(world.members(leader).get(cluster) == "DEAD" for leader in others)


def routed(world: World, cluster: str) -> bool:
    """Whether any leader has a route to a cluster."""
    leaders = (world.hosts[name].core for of, name in world.leaders().items() if of != cluster)
    return any(core is not None and core.m.routes.next_hop(cluster) is not None for core in leaders)


def works(world: World, names: Iterable[str]) -> bool:
    """Whether from every leader the next hops lead to every cluster, over paths that are whole."""
    leaders = {cluster: world.hosts[name] for cluster, name in world.leaders().items()}
    return all(_reaches(world, leaders, a, b) for a in names for b in names if a != b)


def _reaches(world: World, leaders: dict[str, Any], source: str, target: str) -> bool:
    at = source
    for _ in leaders:
        host = leaders.get(at)
        hop = host.core.m.routes.next_hop(target) if host is not None else None
        if hop is None or hop not in leaders or world.internet.blocked(host.name, leaders[hop].name):
            return False
        if hop == target:
            return True
        at = hop
    return False


def listen(host: Host, kind: type[N], told: Callable[[str, N], object]) -> Callable[[], None]:
    """Be told one kind of a peer's notices, with the host's name, until the result is called."""
    on = [True]
    if host.peer is not None:
        host.peer.subscribe(lambda notice: told(host.name, notice) if on and isinstance(notice, kind) else None)
    return on.clear


def lossy(clusters: int, seed: int) -> dict[str, float]:
    """A tenth of everything is lost: how many thought a cluster dead, or suspected one; then one dies in earnest."""
    seen: list[MemberChanged] = []
    with built(clusters, seed, train=True, loss=LOSS) as world:
        world.run_until(world.settled, PATIENCE, step=0.5, what="the mesh has settled")
        for host in world.running():
            listen(host, MemberChanged, lambda _, notice: seen.append(notice))
        before = world.version()
        world.run_for(LOSSY)
        told = Counter(notice.status for notice in seen if notice.scope == "mesh")
        counts = {"committed": world.version() - before, "deaths": told["dead"], "suspicions": told["suspect"]}
        return {**counts, **cluster_dies(world)}


COLOURS = ("#2b6cb0", "#2f855a", "#dd6b20", "#805ad5")
KINDS = {"control": control, "rounds": rounds, "lossy": lossy}


# ---------------------------------------------------------------- campaigns


def campaign(options: argparse.Namespace) -> None:
    """Measure what is not in the file yet."""
    done = {(row["kind"], row["clusters"], row["seed"]) for row in load(options.json)}
    for clusters, kind, seed in itertools.product(options.clusters, options.kinds, range(options.seeds)):
        if (kind, clusters, seed) not in done:
            row = apart(KINDS[kind], clusters, seed, options.timeout)
            append(options.json, {"kind": kind, "clusters": clusters, "seed": seed, **row})


def apart(measure: Callable[[int, int], dict[str, Any]], clusters: int, seed: int, timeout: float) -> dict[str, Any]:
    """One run in a process of its own, which is killed when it takes too long."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    began = time.monotonic()
    process = context.Process(target=_child, args=(theirs, measure, clusters, seed))
    process.start()
    theirs.close()
    row: dict[str, Any] = {"failed": f"longer than {timeout:g} s"}
    with contextlib.suppress(EOFError):
        if ours.poll(timeout):
            row = ours.recv()
    process.kill()
    process.join()
    return {**row, "wall": round(time.monotonic() - began, 1)}


def _child(pipe: Any, measure: Callable[[int, int], dict[str, Any]], clusters: int, seed: int) -> None:
    torch.set_num_threads(1)
    try:
        row = measure(clusters, seed)
    except AssertionError as error:
        row = {"failed": str(error)[:2000]}
    row["cpu"] = round(sum(os.times()[:2]), 1)
    pipe.send(row)


def load(path: Path) -> list[dict[str, Any]]:
    """All rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    shown = {key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()}
    print(shown, flush=True)


# ---------------------------------------------------------------- what people see


def tables(rows: list[dict[str, Any]]) -> Iterator[Table]:
    """Measured beside bounds, and what loss did."""
    heads: tuple[str, ...] = ("seconds to", "clusters", "p50", "p99", "longest", "bound p50", "bound p99", "seeds")
    lines = []
    for measure in MEASURES:
        for n, seconds in found(rows, measure).items():
            figures = [*np.quantile(seconds, (0.5, 0.99)), seconds[-1], measure.bound(n, 0.5), measure.bound(n, 0.99)]
            lines.append((measure.title, str(n), *(f"{figure:.1f}" for figure in figures), str(len(seconds))))
    yield Table("convergence after a failure, WAN profile", heads, tuple(lines))
    heads = (
        "clusters",
        "seeds",
        "minutes each",
        "rounds",
        "deaths",
        "suspicions",
        "then a crash: s, p50",
        "longest",
        "bound p99",
    )
    lines = []
    lost = [row for row in rows if row["kind"] == "lossy" and "failed" not in row]
    for n in sorted({row["clusters"] for row in lost}):
        runs = [row for row in lost if row["clusters"] == n]
        sums = [sum(row[key] for row in runs) for key in ("committed", "deaths", "suspicions")]
        known = sorted(row["known"] for row in runs)
        crash = (f"{seconds:.1f}" for seconds in (np.median(known), known[-1], bounds.crash_known(n, 0.99)))
        lines.append((str(n), str(len(runs)), f"{LOSSY / 60:g}", *map(str, sums), *crash))
    yield Table("a tenth of all segments lost; beside it the bound without loss", heads, tuple(lines))
    failed = [row for row in rows if "failed" in row]
    why = [(row["kind"], str(row["clusters"]), str(row["seed"]), row["failed"].splitlines()[0]) for row in failed]
    yield Table("runs that came to nothing", ("kind", "clusters", "seed", "why"), tuple(why))


def found(rows: list[dict[str, Any]], measure: Measure) -> dict[int, list[float]]:
    """What was measured, ascending, by number of clusters."""
    good = [row for row in rows if row["kind"] == measure.kind and "failed" not in row]
    sizes = sorted({row["clusters"] for row in good})
    return {n: sorted(row[measure.key] for row in good if row["clusters"] == n) for n in sizes}


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the distributions, one panel per measure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 6.4), layout="constrained")
    *panels, key = figure.subplots(2, 4).flat
    for axes, measure in zip(panels, MEASURES, strict=True):
        for (n, seconds), colour in zip(found(rows, measure).items(), COLOURS, strict=False):
            share = (np.arange(len(seconds)) + 1) / len(seconds)
            axes.step([0, *seconds], [0, *share], where="post", color=colour, label=f"{n} clusters")
            axes.axvline(measure.bound(n, 0.99), color=colour, linestyle=":", linewidth=1)
        axes.set_title(measure.title, fontsize=10)
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("virtual seconds after the fault", fontsize=8)
    key.legend(*panels[0].get_legend_handles_labels(), loc="upper left")
    key.set_axis_off()
    figure.suptitle("Share of the runs in which it had happened by then; dotted: the p99 of the bound", fontsize=10)
    figure.savefig(path)


def main() -> None:
    """Measure, then show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], metavar="KIND", help="control, rounds, lossy")
    parser.add_argument("--clusters", type=whole(4), nargs="+", default=[4, 16, 64], metavar="N")
    parser.add_argument("--seeds", type=count, default=100, metavar="COUNT", help="seeds 0 to COUNT - 1 of each")
    parser.add_argument("--json", type=Path, default=Path("runs/convergence.jsonl"), metavar="FILE")
    parser.add_argument("--plot", type=output, metavar="FILE")
    parser.add_argument("--timeout", type=positive, default=900.0, metavar="SECONDS", help="of real time, per run")
    options = parser.parse_args()
    try:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.open("a").close()
    except OSError as error:
        parser.error(f"argument --json: {str(options.json)!r} cannot be written to: {error.strerror}")
    try:
        load(options.json)
    except ValueError as error:
        parser.error(f"argument --json: {str(options.json)!r} holds what is no row of earlier runs: {error}")
    campaign(options)
    rows = load(options.json)
    show([table for table in tables(rows) if table.rows], sys.stdout)
    if options.plot is not None:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
