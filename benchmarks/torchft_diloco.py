"""The same DiLoCo twice in one run: ours and torchft's, two replicas each, the same model, data and seeds.

    pip install torchft-nightly          # for this comparison only; nothing of ictp2p needs it
    python benchmarks/torchft_diloco.py --json docs/torchft.json

Each replica is a thread with a model of its own; ours are two peers over TCP on this machine, torchft's two managers
with Gloo and a lighthouse. After every round the parameters of both implementations are compared: equal to the
tolerance of float32 is what two implementations of one algorithm can be asked for, since each sums in an order of its
own. Compared are DiLoCo, and two fragments in turn (Streaming DiLoCo without overlap, where the two take the same
timetable), with the local parameters mixed in or not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from arguments import output
from torch import Tensor, nn

import ictp2p
from ictp2p.sync.optimizers.outer import Nesterov

os.environ.setdefault("RUST_LOG", "error")  # torchft's core logs every quorum
try:
    from torchft.coordination import LighthouseServer
    from torchft.local_sgd import DiLoCo as TorchftDiLoCo
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo
except ImportError as error:
    raise SystemExit(f"torchft_diloco: {error}; pip install torchft-nightly") from error

REPLICAS = 2
WIDTH = 24
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """One algorithm to compare."""

    name: str
    fragments: int = 1
    mix: float = 0.0
    every: int = 6
    rounds: int = 12


CASES = (Case("DiLoCo"), Case("two fragments", fragments=2), Case("two fragments, mix 0.5", fragments=2, mix=0.5))
Trajectory = list[Tensor]
"""All parameters of a replica, flat, after each round."""


def make_model() -> nn.Sequential:
    """A perceptron of two layers, the same each time."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))


def make_inner(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW, as DiLoCo has it."""
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(case: Case, replica: int, model: nn.Module, inner: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Take the inner steps of all rounds, and give the parameters after each."""
    generator = torch.Generator().manual_seed(100 + replica)
    between = case.every // case.fragments
    for step in range(1, case.rounds * between + 1):
        given = torch.randn(16, WIDTH, generator=generator)
        (torch.tanh(model(given)) - given.roll(1, dims=1)).square().mean().backward()
        inner.step()
        inner.zero_grad()
        if step % between == 0:
            yield torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def with_torchft(case: Case) -> list[Trajectory]:
    """Run torchft's; one trajectory per replica."""
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=REPLICAS, join_timeout_ms=10000)

    def replica(number: int) -> Trajectory:
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        model = make_model()
        inner = make_inner(model)
        layers = list(model) if case.fragments > 1 else [model]
        outer = [torch.optim.SGD(layer.parameters(), lr=0.7, momentum=0.9, nesterov=True) for layer in layers]
        manager = Manager(
            pg=ProcessGroupGloo(timeout=timedelta(seconds=PATIENCE)),
            load_state_dict=model.load_state_dict,
            state_dict=model.state_dict,
            min_replica_size=REPLICAS,
            use_async_quorum=False,
            replica_id=f"replica_{number}",
            store_addr="localhost",
            store_port=store.port,
            rank=0,
            world_size=1,
            lighthouse_addr=lighthouse.address(),
            timeout=timedelta(seconds=PATIENCE),
            init_sync=False,
        )
        try:
            with TorchftDiLoCo(manager, layers, inner, outer, case.every, fragment_update_alpha=case.mix):
                return list(train(case, number, model, inner))
        finally:
            manager.shutdown(wait=False)

    try:
        return _in_threads(replica)
    finally:
        lighthouse.shutdown()


def with_ictp2p(case: Case) -> list[Trajectory]:
    """Run ours; one trajectory per replica."""
    entered = threading.Barrier(REPLICAS)
    addresses: list[str] = []
    founded = threading.Event()
    token = "a token of thirty-two letters or so"

    def replica(number: int) -> Trajectory:
        if number:
            founded.wait(PATIENCE)
        model = make_model()
        inner = make_inner(model)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            join = tuple(addresses[:1])
            peer = stack.enter_context(
                ictp2p.Peer(ictp2p.Config.local(cluster="ab"[number], token=token, join=join, data_dir=folder))
            )
            addresses.append(str(peer.address))
            founded.set()
            options: dict[str, Any] = {"fragments": [["0"], ["1"]] if case.fragments > 1 else 1, "mix": case.mix}
            stack.enter_context(
                ictp2p.StreamingDiLoCo(
                    peer, model, inner, lambda p: Nesterov(p, lr=0.7), sync_every=case.every, overlap=0, **options
                )
            )
            _until(lambda: sum(bool(cluster["training"]) for cluster in peer.clusters) == REPLICAS)
            entered.wait(PATIENCE)
            return list(train(case, number, model, inner))

    return _in_threads(replica)


def _in_threads(replica: Callable[[int], Trajectory]) -> list[Trajectory]:
    with ThreadPoolExecutor(REPLICAS) as pool:
        return list(pool.map(replica, range(REPLICAS)))


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the two clusters did not find each other")
        time.sleep(0.05)


def compare(case: Case) -> dict[str, Any]:
    """Run both, and measure how far they are apart."""
    theirs, ours = with_torchft(case), with_ictp2p(case)
    apart = [
        float((a - b).abs().max() / b.abs().max())
        for mine, other in zip(ours, theirs, strict=True)
        for a, b in zip(mine, other, strict=True)
    ]
    moved = float((theirs[0][-1] - theirs[0][0]).abs().max())
    tolerance = 1e-5
    return {
        "case": case.name,
        "rounds": case.rounds,
        "most_apart": max(apart),
        "moved": moved,
        "same": max(apart) < tolerance,
    }


def main() -> None:
    """Compare every case; print, and perhaps save, how far the two are apart."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    rows = []
    for case in CASES:
        rows.append(compare(case))
        found = rows[-1]
        print(
            f"{case.name}: {'same' if found['same'] else 'NOT THE SAME'} after each of {case.rounds} rounds; "
            f"at most {found['most_apart']:.1e} of the largest parameter apart, which moved by {found['moved']:.2f}",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
