"""Is overlap real: with a round under cover of training, a phase takes as long as the slower of the two, not their sum.

    python benchmarks/overlap.py --json docs/overlap.json

Two peers, each a process in a network namespace of its own, on a line of `--mbit` Mbit/s with a round trip of 20 ms
(`emulator`), train a model of `--mb` MB with Streaming DiLoCo. An inner step sleeps, as the host does while an
accelerator computes. In turn, phases of H steps whose round blocks (`overlap=0`), and phases whose round has the whole
next phase (`overlap=H`): once where computing takes longer, once where communication does. *Compute* is the phase
without the policy, *round* what it takes longer when the round blocks. Needs root, on Linux.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import torch
from arguments import count, megabytes, output, positive
from emulator import Emulator, enter, require_root

import ictp2p

H = 8
WARM, PHASES = 2, 4
"""Phases before the measurement, and in it."""
PORT = 7450
PATIENCE = 120.0
TOKEN = "a token of thirty-two letters or so"


@dataclass(frozen=True, slots=True)
class Load:
    """How long a step takes, in terms of what the round should: below one, communication is the slower."""

    name: str
    share: float


LOADS = (Load("compute is slower", 1.6), Load("communication is slower", 0.5))


def main() -> None:
    """Measure both loads, blocking and overlapped in turn; print, and perhaps save, the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mbit", type=positive, default=20.0, help="rate of the line, Mbit/s each way")
    parser.add_argument("--mb", type=megabytes, default=4.0, help="size of the model, MB (1e6 bytes)")
    parser.add_argument("--repeat", type=count, default=3, help="turns of each")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    require_root(parser)
    rows = [measure(load, options.mbit, options.mb, options.repeat) for load in LOADS]
    if options.json:
        options.json.write_text(json.dumps({"mbit": options.mbit, "mb": options.mb, "rows": rows}, indent=2) + "\n")


def measure(load: Load, mbit: float, mb: float, repeat: int) -> dict[str, Any]:
    """Run the turns of one load."""
    step = load.share * mb * 8.0 / mbit / H
    turns: dict[int, list[float]] = {0: [], H: []}
    bare = []
    for _ in range(repeat):
        for overlap, seconds in turns.items():
            found = pair(step, overlap, mbit, mb)
            seconds.append(max(each["phase"] for each in found))
            bare += [each["compute"] for each in found]
    compute, blocking, covered = (statistics.median(each) for each in (bare, turns[0], turns[H]))
    row = {
        "load": load.name,
        "compute": compute,
        "round": blocking - compute,
        "blocking": blocking,
        "overlapped": covered,
        "against_the_slower": covered / max(compute, blocking - compute),
        "against_the_sum": covered / blocking,
    }
    print(
        f"{load.name}: compute {compute:.3f} s, round {row['round']:.3f} s; a phase takes {blocking:.3f} s blocking, "
        f"{covered:.3f} s overlapped: {row['against_the_slower']:.2f} of the slower, {row['against_the_sum']:.2f} of "
        f"the sum",
        flush=True,
    )
    return row


def pair(step: float, overlap: int, mbit: float, mb: float) -> list[dict[str, float]]:
    """Run two peers over a network of their own; give what each measured."""
    context = multiprocessing.get_context("spawn")
    results, barrier = context.Queue(), context.Barrier(2)
    with Emulator((mbit, mbit), delay=10.0) as network, tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(
                target=be, args=(node, path, folder, network.address(0), step, overlap, mb, barrier, results)
            )
            for node, path in enumerate(network.paths())
        ]
        try:
            for process in workers:
                process.start()
            found = [results.get(timeout=PATIENCE) for _ in workers]
        finally:
            for process in workers:
                process.kill()
                process.join()
    if failed := [each for each in found if isinstance(each, BaseException)]:
        raise failed[0]
    return found


def be(
    node: int, path: str, folder: str, founder: str, step: float, overlap: int, mb: float, barrier: Any, results: Any
) -> None:
    """Be one peer, in its namespace."""
    enter(path)
    torch.set_num_threads(1)
    try:
        results.put(train(node, folder, founder, step, overlap, mb, barrier))
    except BaseException as error:
        results.put(RuntimeError(f"node {node}: {error!r}"))
        barrier.abort()
        raise


def train(node: int, folder: str, founder: str, step: float, overlap: int, mb: float, barrier: Any) -> dict[str, float]:
    """Take the steps, and measure."""
    model = torch.nn.Linear(int(mb * 1e6 / 4 / 1000), 1000, bias=False)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)

    def phases(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count * H):
            time.sleep(step)
            inner.step()
        return (time.perf_counter() - began) / count

    compute = phases(1)
    if node:
        barrier.wait(PATIENCE)  # the founder is up
    config = ictp2p.Config.wan(
        cluster="ab"[node],
        token=TOKEN,
        listen=f"0.0.0.0:{PORT}",
        join=(f"{founder}:{PORT}",) if node else (),
        data_dir=f"{folder}/{node}",
    )
    with ictp2p.Peer(config) as peer:
        if not node:
            barrier.wait(PATIENCE)
        policy = ictp2p.StreamingDiLoCo(peer, model, inner, sync_every=H, fragments=1, overlap=overlap)
        with policy:
            while sum(bool(cluster["training"]) for cluster in peer.clusters) < 2:
                time.sleep(0.05)
            barrier.wait(PATIENCE)
            phases(WARM)
            barrier.wait(PATIENCE)
            phase = phases(PHASES)
            barrier.wait(PATIENCE)
    return {"phase": phase, "compute": compute}


if __name__ == "__main__":
    main()
