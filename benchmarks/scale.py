"""How large a mesh the simulator bears, and what the control plane costs: `python benchmarks/scale.py train converge`.

Three measurements, on the real peers in virtual time (TLS aside), of one process on one core:

- `train`: clusters of one worker that train, with rounds, for some virtual minutes: processor seconds.
- `converge`: clusters without training come up at once; how long, in virtual and in processor seconds, until every
  peer knows every cluster (`--workers` of each) and, unless `--no-routes`, every leader has a route to every other.
- `bytes`: what each peer sends per second against the number of clusters, at rest, after `--warm` virtual seconds.

The invariants are not looked at unless `--audit`: they cost as much as the peers. `--json FILE` writes all figures.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arguments import count, output, positive, seconds, whole

from sim import World, mesh


@dataclass(frozen=True, slots=True)
class Figures:
    """One run."""

    what: str
    clusters: int
    workers: int
    virtual: float
    """Virtual seconds."""
    cpu: float
    """Processor seconds of this process, its start not counted."""
    memory: float
    """Largest resident size of this process so far, bytes."""
    steps: int
    """Callbacks of the event loop."""
    messages: float
    """Messages that a peer got per virtual second."""
    sent: float
    """Bytes that a peer sent per virtual second, on control and data connections."""
    connections: float
    """Control connections of a peer, on average."""
    version: int
    """Of the global state at the end."""
    ok: bool


class Run:
    """A world and what it has cost.

    Args:
        what: name of the measurement.
        world: with its clusters declared.
    """

    def __init__(self, what: str, world: World) -> None:
        self.world = world
        self._what = what
        self.restart()

    def restart(self) -> None:
        """Count from here on."""
        trace = self.world.trace
        self._began = (self.world.now, time.process_time(), self.world.loop.steps, trace.deliveries, trace.bytes)

    def figures(self, ok: bool) -> Figures:
        """What it has cost since the last `restart`."""
        world = self.world
        virtual, cpu, steps, messages, sent = (
            now - then
            for now, then in zip(
                (world.now, time.process_time(), world.loop.steps, world.trace.deliveries, world.trace.bytes),
                self._began,
                strict=True,
            )
        )
        cores = [host.core for host in world.running() if host.core is not None]
        peers = max(1, len(cores))
        return Figures(
            what=self._what,
            clusters=len(world.clusters),
            workers=len(world.hosts) // len(world.clusters),
            virtual=round(virtual, 3),
            cpu=round(cpu, 2),
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
            steps=int(steps),
            messages=round(messages / peers / virtual, 2),
            sent=round(sent / peers / virtual, 1),
            connections=round(sum(len(core.connected()) for core in cores) / peers, 1),
            version=world.version(),
            ok=ok,
        )


def built(options: argparse.Namespace, clusters: int, workers: int, *, compute: float | None) -> World:
    """A world of equal clusters, far apart."""
    world = World(options.seed, profile=options.profile, elide=True, audit=options.audit)
    world.links(delay=options.delay)
    for name in mesh.names(clusters):
        world.cluster(
            name, workers=workers, train=compute is not None, compute=compute or 1.0, elements=options.elements,
            up=options.access, down=options.access,
        )  # fmt: skip
    return world


def train(options: argparse.Namespace) -> list[Figures]:
    """Clusters that train for some virtual minutes."""
    clusters, workers = options.clusters or 64, options.workers or 1
    with built(options, clusters, workers, compute=options.compute) as world:
        run = Run("train", world)
        world.run_for(60.0 * options.minutes)
        return [run.figures(ok=world.believes_all() and world.version() > 1)]


def converge(options: argparse.Namespace) -> list[Figures]:
    """Clusters come up at once, and find each other."""
    clusters, workers = options.clusters or 256, options.workers or 1
    with built(options, clusters, workers, compute=None) as world:
        run = Run("converge", world)
        routes = clusters * (clusters - 1)

        def known() -> bool:
            return world.believes_all() and (options.no_routes or len(world.routes()) == routes)

        world.run_until(known, 300.0, step=0.5, what="everybody knows everybody")
        return [run.figures(ok=True)]


def traffic(options: argparse.Namespace) -> list[Figures]:
    """What peers send at rest, against their number."""
    found = []
    for clusters in [options.clusters] if options.clusters else [8, 16, 32, 64, 128, 256]:
        with built(options, clusters, options.workers or 1, compute=None) as world:
            run = Run("bytes", world)
            world.run_for(options.warm)
            run.restart()
            world.run_for(60.0 * options.minutes)
            found.append(run.figures(ok=world.believes_all()))
        shown(found[-1])
    return found


KINDS = {"train": train, "converge": converge, "bytes": traffic}


def shown(figures: Figures) -> None:
    """Print one run."""
    f = figures
    print(
        f"{f.what}: {f.clusters} clusters x {f.workers}: {f.virtual:g} virtual s in {f.cpu:g} CPU s, "
        f"{f.memory / 1e9:.2f} GB, {f.messages:g} messages and {f.sent:g} bytes per peer and second, "
        f"{f.connections:g} connections, version {f.version}, {'ok' if f.ok else 'NOT CONVERGED'}",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 if all of it converged."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("what", nargs="+", choices=[*KINDS])
    add("--clusters", type=count, help="how many (default: 64 to train, 256 to converge, 8 to 256 for bytes)")
    add("--workers", type=count, help="of each cluster (default: 1)")
    add("--minutes", type=positive, default=10.0, help="virtual, to train or to count bytes for (default: %(default)g)")
    add("--warm", type=seconds, default=300.0, help="virtual seconds before bytes are counted (default: %(default)g)")
    add("--compute", type=positive, default=30.0, help="virtual seconds of an inner phase (default: %(default)g)")
    add("--elements", type=count, default=1_000_000, help="of the state, float32, elided (default: %(default)d)")
    add("--access", type=positive, default=125e6, help="bytes/s of a cluster's access line (default: %(default)g)")
    add("--delay", type=seconds, default=0.03, help="seconds one way (default: %(default)g)")
    add("--profile", default="wan", choices=("local", "lan", "wan"))
    add("--seed", type=whole(0), default=1)
    add("--no-routes", action="store_true", help="converge: do not wait for routes")
    add("--audit", action="store_true", help="look at the invariants too")
    add("--json", type=output, metavar="FILE")
    options = parser.parse_args(arguments)
    gc.set_threshold(50_000, 20, 50)  # a world is millions of objects that live long: look at the young ones less often
    found: list[Figures] = []
    for what in options.what:
        found += KINDS[what](options)
        if what != "bytes":
            shown(found[-1])
    if options.json:
        report: dict[str, Any] = {
            "options": {key: value for key, value in vars(options).items() if key != "json"},
            "runs": [asdict(figures) for figures in found],
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(figures.ok for figures in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
