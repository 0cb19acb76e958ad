"""Memory of training under a policy: the most that a worker's process holds, against what it must hold.

    python benchmarks/policy_memory.py --mb 400 --json docs/policy_memory.json

Two peers on this machine train a model of `--mb` MB under each policy. What a worker must hold is what the same loop
holds without a policy (measured: the model, its gradients and AdamW's state, two models, with what a step of it takes
for a moment), the agreed state with the outer optimizer's momentum where there is one, and of the fragment in flight
the next state, the pseudo-gradient and its average. What it holds beyond that is compared with two fragments. Measured
is the high-water mark of resident memory (`VmHWM`), from before the model was made to the end of the last round. What
torch loads for its first optimizer, some 80 MB of code, is loaded before.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from arguments import megabytes, named, output
from memory import forget_peak, held

import ictp2p

LAYERS = 48
H = 2
ROUNDS = 4
"""At least; with fragments, until each was in one, and one in two."""
PATIENCE = 300.0
TOKEN = "a token of thirty-two letters or so"


@dataclass(frozen=True, slots=True)
class Case:
    """One policy, and what it holds."""

    name: str
    make: Callable[..., Any]
    options: dict[str, Any]
    state: int
    """Models in the agreed state."""
    fragments: int = 1


CASES = (
    Case("LocalSGD", ictp2p.LocalSGD, {"sync_every": H}, state=1),
    Case("DiLoCo", ictp2p.DiLoCo, {"sync_every": H}, state=2),
    Case("DiLoCo int8", ictp2p.DiLoCo, {"sync_every": H, "codec": "int8"}, state=2),
    Case(
        "Streaming DiLoCo, 8 fragments, overlap 1",
        ictp2p.StreamingDiLoCo,
        {"sync_every": 8 * H, "fragments": 8, "overlap": 1},
        state=2,
        fragments=8,
    ),
)


def main() -> None:
    """Measure every policy; print, and perhaps save, one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mb", type=megabytes, default=400.0, help="size of the model, MB (1e6 bytes)")
    parser.add_argument("--only", **named(case.name for case in CASES))
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        if options.only and case.name not in options.only:
            continue
        rows.append(measure(case, options.mb))
        row = rows[-1]
        print(
            f"{case.name}: most {row['peak_mb']:.0f} MB, needed {row['needed_mb']:.0f} MB; {row['beyond_mb']:.0f} MB "
            f"beyond that, {'within' if row['within'] else 'ABOVE'} two fragments of {row['fragment_mb']:.0f} MB",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps({"mb": options.mb, "rows": rows}, indent=2) + "\n")


def measure(case: Case, mb: float) -> dict[str, Any]:
    """Run two workers; give the larger peak, and what it is compared with."""
    context = multiprocessing.get_context("spawn")
    plain = context.Queue()
    control = context.Process(target=alone, args=(mb, plain))
    control.start()
    without = plain.get(timeout=PATIENCE) / 1e6
    control.join()
    results, barrier, addresses = context.Queue(), context.Barrier(2), context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        number = CASES.index(case)
        workers = [
            context.Process(target=be, args=(node, number, mb, folder, barrier, addresses, results))
            for node in range(2)
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
    peak = max(each["peak"] for each in found) / 1e6
    size = found[0]["model"] / 1e6
    fragment = found[0]["fragment"] / 1e6
    needed = without + size * case.state + fragment * (case.state + 2)
    beyond = peak - needed
    return {
        "policy": case.name,
        "peak_mb": peak,
        "without_mb": without,
        "needed_mb": needed,
        "fragment_mb": fragment,
        "beyond_mb": beyond,
        "within": beyond <= 2 * fragment,
    }


def alone(mb: float, results: Any) -> None:
    """Train without a policy; give the bytes that it took."""
    torch.set_num_threads(1)
    before = begin()
    model, inner = make(mb)
    for _ in range(2):
        step(model, inner)
    results.put(held("VmHWM") - before)


def be(node: int, number: int, mb: float, folder: str, barrier: Any, addresses: Any, results: Any) -> None:
    """Be one worker."""
    torch.set_num_threads(1)
    try:
        results.put(train(node, CASES[number], mb, folder, barrier, addresses))
    except BaseException as error:
        results.put(RuntimeError(f"worker {node}: {error!r}"))
        barrier.abort()
        raise


def train(node: int, case: Case, mb: float, folder: str, barrier: Any, addresses: Any) -> dict[str, float]:
    """Train for some rounds; give the bytes that it took."""
    join = (addresses.get(timeout=PATIENCE),) if node else ()
    config = ictp2p.Config.local(cluster="ab"[node], token=TOKEN, join=join, data_dir=f"{folder}/{node}")
    with ictp2p.Peer(config) as peer:
        if not node:
            addresses.put(str(peer.address))
        begin()
        barrier.wait(PATIENCE)
        before = begin()
        model, inner = make(mb)
        with case.make(peer, model, inner, **case.options) as policy:
            while sum(bool(cluster["training"]) for cluster in peer.clusters) < 2:
                time.sleep(0.05)
            barrier.wait(PATIENCE)
            while policy.version < 1 + max(ROUNDS, 1 + case.fragments):
                step(model, inner)
            peak = held("VmHWM") - before
            barrier.wait(PATIENCE)
        size = sum(parameter.numel() * 4 for parameter in model.parameters())
        return {"peak": peak, "model": size, "fragment": size / case.fragments}


def begin() -> int:
    """Load what torch loads for its first optimizer, and begin the high-water mark; give what is held."""
    torch.optim.AdamW(torch.nn.Linear(1, 1).parameters(), foreach=False).step()
    forget_peak()
    return held("VmRSS")


def make(mb: float) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Make a model of that size, and its optimizer."""
    side = max(1, round((mb * 1e6 / 4 / LAYERS) ** 0.5))
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side, bias=False) for _ in range(LAYERS)))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)


def step(model: torch.nn.Module, inner: torch.optim.Optimizer) -> None:
    """Take an inner step along made-up gradients."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.fill_(1e-3)
    inner.step()


if __name__ == "__main__":
    main()
