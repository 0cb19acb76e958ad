"""Worlds and faults drawn at random, one after the other: `python -m sim.campaign 0 300`, or `make campaign`.

Each seed gives a document in the format of scenario files: some clusters, links between them, half a minute of chaos,
then calm, and the expectation that the mesh recovers (`sim.invariants.recovery`). So a seed that fails leaves a report
that `ictp2p sim replay` plays again, without this module and whatever it may draw by then.

With `--clusters 24` the worlds are of that many clusters, which do not train and keep connections to a few others each.
What routes and gossip do over several hops shows only there. Once calm has come some of them die, and stay dead: all
must forget the ways to them, though many ways around lead through whoever has not heard of it yet.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim import report
from sim.chance import Chance
from sim.chaos import chaos
from sim.faults import Calm, Crash
from sim.plan import FaultPlan
from sim.scenario import play
from sim.scenario_file import read
from sim.stage import Stage

CHAOS = 30.0
"""Virtual seconds of faults."""
SETTLED = 5.0
"""Virtual seconds before them."""
HEAVY = 0.25
"""Share of the worlds whose state is megabytes, over links that several connections fill better than one."""
NAMES = "abcde"
CALM = 10.0
"""Virtual seconds between the faults and what is expected."""
FULL_MESH = 8
"""Clusters up to which every two of a large world keep a connection."""
DEATHS = 0.15
"""Share of the clusters of a large world that die in the end."""


def drawn(seed: int) -> dict[str, Any]:
    """Draw a world and its faults, as a document."""
    chance = Chance(seed)
    names = NAMES[: 2 + int(chance.uniform("campaign", "clusters") * 4)]
    clusters = [_cluster(chance, name, first=name == "a") for name in names]
    hosts = [f"{cluster['name']}/{n}" for cluster in clusters for n in range(cluster["workers"])]
    faults = chaos(chance, list(names), hosts, seconds=CHAOS, every=0.5 + chance.uniform("campaign", "pace"))
    steps = [(SETTLED + at, fault) for at, fault in faults]
    run = {"seconds": SETTLED + CHAOS + CALM, "profile": "local", "compute": 1.0, "spare": True}
    heavy = chance.happens(HEAVY, "campaign", "heavy")
    return {
        "about": f"Campaign seed {seed}.",
        "run": {**run, "elements": int(1e5 + 1e6 * chance.uniform("campaign", "elements"))} if heavy else run,
        "links": _lossy(chance) if heavy else {"delay": 0.02},
        "cluster": clusters,
        "link": [_link(chance, a, b) for a, b in itertools.combinations(names, 2) if chance.happens(0.3, "campaign")],
        "fault": FaultPlan.of([*steps, (SETTLED + CHAOS + CALM, Calm())]).to_list(),
        "expect": {"recovery": True},
    }


def drawn_large(seed: int, size: int) -> dict[str, Any]:
    """Draw a world of many clusters, its faults, and who dies in the end, as a document."""
    chance = Chance(seed)
    names = [f"c{n:03}" for n in range(size)]
    faults = chaos(chance, names, [f"{name}/0" for name in names], seconds=CHAOS, every=0.5)
    calm = 2 * SETTLED + CHAOS
    dead = sorted(names, key=lambda name: chance.uniform("campaign", "dead", name))[: math.ceil(DEATHS * size)]
    deaths = [(calm + CALM * (1 + n), Crash(f"{name}/0", power=chance.happens(0.5))) for n, name in enumerate(dead)]
    return {
        "about": f"Campaign seed {seed}, {size} clusters.",
        "run": {"seconds": deaths[-1][0] + 0.1, "profile": "local", "full_mesh": FULL_MESH},
        "links": {"delay": 0.02, "jitter": 0.002},
        "cluster": [{"name": name, "workers": 1, "train": False} for name in names],
        "link": [
            {"a": a, "b": b, "delay": round(0.08 * chance.uniform("campaign", "delay"), 4)}
            for a, b in itertools.combinations(names, 2)
        ],
        "fault": FaultPlan.of(
            [*((2 * SETTLED + at, fault) for at, fault in faults), (calm, Calm()), *deaths]
        ).to_list(),
        "expect": {"recovery": True},
    }


def _cluster(chance: Chance, name: str, *, first: bool) -> dict[str, Any]:
    """A cluster; the first one founds the mesh and is there from the start, and can be dialed."""
    nat = not first and chance.happens(0.2, "campaign", "nat")
    workers = 1 + int(chance.uniform("campaign", "workers") * 3)
    late = not first and chance.happens(0.2, "campaign", "late")
    at = 20.0 * chance.uniform("campaign", "at") if late else 0.0
    return {"name": name, "workers": workers, "nat": nat, "compute": 0.5 + chance.uniform("campaign", "pace"), "at": at}


def _lossy(chance: Chance) -> dict[str, Any]:
    """Links that several connections fill better than one."""
    return {
        "delay": 0.005 + 0.05 * chance.uniform("campaign", "delays"),
        "loss": 0.003 * chance.uniform("campaign", "losses"),
        "bandwidth": 5e6 + 2e7 * chance.uniform("campaign", "bandwidths"),
    }


def _link(chance: Chance, a: str, b: str) -> dict[str, Any]:
    """A link of its own, slower or lossier than the others."""
    return {
        "a": a,
        "b": b,
        "delay": 0.2 * chance.uniform("campaign", "delay"),
        "loss": 0.02 * chance.uniform("campaign", "loss"),
        "bandwidth": 1e5 + 1e7 * chance.uniform("campaign", "bandwidth"),
    }


def tried(seed: int, size: int | None = None) -> tuple[Stage, dict[str, Any]]:
    """Play the world of a seed, perhaps one of many clusters; its stage, and the report."""
    document = drawn(seed) if size is None else drawn_large(seed, size)
    scenario = read(document, f"campaign-{seed}" if size is None else f"campaign-{size}-{seed}")
    stage = play(scenario, seed, {})
    return stage, report.document(scenario, stage, {})


def main(arguments: Sequence[str] | None = None) -> int:
    """Try seeds; 0 if none failed."""
    parser = argparse.ArgumentParser(prog="python -m sim.campaign", description="Try worlds and faults at random.")
    parser.add_argument("first", type=int, help="seed")
    parser.add_argument("end", type=int, help="seed before which to stop")
    parser.add_argument("--clusters", type=int, metavar="N", help="worlds of many clusters each, that do not train")
    parser.add_argument("--left", type=Path, default=Path("runs"), help="where reports of failed seeds are left")
    options = parser.parse_args(arguments)
    if options.clusters is not None and options.clusters <= FULL_MESH:
        parser.error(f"--clusters {options.clusters} is too few: need more than {FULL_MESH}")
    if not 0 <= options.first < options.end:
        parser.error(f"first {options.first} and end {options.end} leave no seed: need 0 <= first < end")
    began, failed, virtual, slowest = time.monotonic(), 0, 0.0, dict[str, float]()
    tries = 0
    with contextlib.suppress(KeyboardInterrupt):  # what was tried until then is worth telling
        for seed in range(options.first, options.end):
            stage, told = tried(seed, options.clusters)
            with stage:
                virtual += stage.world.now
                for check in stage.checks:
                    slowest[check.what] = max(slowest.get(check.what, 0.0), float(check.seen.removesuffix(" s")))
            if not told["ok"]:
                failed += 1
                _leave(told, options.left)
            tries += 1
            del stage
            gc.collect()  # a world is full of cycles, and its tensors are nothing that the collector would come for
    sys.stdout.write(f"{tries} seeds, {failed} failed, {virtual / 3600:.1f} virtual hours")
    sys.stdout.write(f" in {time.monotonic() - began:.0f} s\nlongest: {slowest}\n")
    return 1 if failed else 0


def _leave(told: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sim-{told['scenario']}.json"
    report.save(told, path)
    sys.stdout.write(f"{told['scenario']}: {str(told['breach']).splitlines()[0]}\n    ictp2p sim replay {path}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
