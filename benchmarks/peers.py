"""Ours against the transports of torchft and hivemind: the mean of a tensor over peers on loopback, in turn.

    pip install torchft-nightly hivemind      # for this comparison only; nothing of ictp2p needs them
    python benchmarks/peers.py --peers 2 4 --mb 10 100 --json peers.json
    python benchmarks/peers.py --peers 2 4 --mb 0.000004 0.004096 0.065536 --repeat 40

Each peer is a process that runs all contenders, one after the other in every turn (A B C A B C ...):

- *ours*: `Peer.all_reduce` of one cluster per peer, sealed; *ours in clear* with `encrypt=False`.
- *torchft*: a `Manager` over its `ProcessGroupGloo`, per turn a quorum, the all-reduce and the vote. In clear.
- *hivemind*: `DecentralizedAverager.step` over its p2p daemon, matchmaking included. Encrypted.

All of these agree on who takes part each time, and survive peers that die. A turn's time is that of the slowest peer,
CPU seconds are those of all peers with all processes that they started, daemons too. Which of the packages cannot be
imported is said and left out. The first turn opens connections and counts for nothing.

Ours asks for cubic on short ways, the others run with the host's congestion control: `--congestion cubic` has all of
them in a network of its own where that is cubic (root, on Linux).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import arena
import pattern
import torch
from arguments import between, count, output, whole
from streams import available as control

import ictp2p

os.environ.setdefault("RUST_LOG", "error")  # torchft's core logs every quorum
OURS, CLEAR, TORCHFT, HIVEMIND = "ours", "ours in clear", "torchft", "hivemind"
CONTENDERS = (HIVEMIND, OURS, CLEAR, TORCHFT)
"""hivemind first: it forks, which a process with threads had better not."""
TOKEN = "benchmark-of-peers-of-other-makes"
PATIENCE = 120.0
Bring = Callable[[torch.Tensor], object]
"""Puts what is brought where a contender takes it from."""
Step = Callable[[], torch.Tensor]
"""Averages once; gives the tensor with the mean."""


def main() -> None:
    """Measure all sizes and numbers of peers; print, and perhaps save, a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", type=whole(2), nargs="+", default=[2, 4])
    sizes = {"type": between(4e-6, 1e6), "nargs": "+", "default": [10.0, 100.0]}
    parser.add_argument("--mb", **sizes, help="tensor sizes in MB (1e6 bytes), from 0.000004: one element")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--repeat", type=count, default=5, help="measurements of each contender")
    parser.add_argument("--congestion", type=control, help="control of all connections, in a network of their own")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    if options.congestion:
        if not (arena.own_network() and arena.prefer(options.congestion)):
            parser.error("argument --congestion: needs root on Linux, and `ip`")
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # there is no other, and the host's name leads elsewhere
    there = [name for name in options.contenders if available(name)]
    rows = []
    for peers in options.peers:
        for mb in options.mb:
            rows.append(
                {"peers": peers, "mb": mb, "load": os.getloadavg()[0], "found": measure(peers, mb, there, options)}
            )
            show(rows[-1])
            if options.json:
                options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def available(name: str) -> bool:
    """Whether a contender's package can be imported; says why not."""
    try:
        if name == TORCHFT:
            import torchft  # noqa: F401
        elif name == HIVEMIND:
            import hivemind  # noqa: F401
    except Exception as error:  # a package for another Python or torch may fail with anything
        print(f"{name} is left out: {type(error).__name__}: {error}")
        return False
    return True


def show(row: dict[str, Any]) -> None:
    """Print one row."""
    print(f"{row['peers']} peers, {row['mb']:g} MB, load {row['load']:.1f}", flush=True)
    ours = row["found"].get(OURS)
    for name, each in row["found"].items():
        against = f", {each['seconds'] / ours['seconds']:5.2f}x ours" if ours and name != OURS else ""
        cpu = each["cpu_seconds"]
        spent = f"{cpu / row['mb'] * 1e3:6.2f} CPU s/GB" if row["mb"] >= 1 else f"{cpu * 1e3:6.2f} CPU ms a call"
        print(f"  {name:14} {each['seconds']:8.4f} s, {spent}{against}", flush=True)


def measure(peers: int, mb: float, contenders: list[str], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Run one process for each peer, and summarize what they measured."""
    context = multiprocessing.get_context("spawn")
    results, barrier, shared = context.Queue(), context.Barrier(peers), context.Manager().dict()
    with contextlib.ExitStack() as stack:
        if TORCHFT in contenders:
            from torchft.coordination import LighthouseServer

            lighthouse = LighthouseServer(bind="[::]:0", min_replicas=peers, join_timeout_ms=1000)
            stack.callback(lighthouse.shutdown)
            shared["lighthouse"] = lighthouse.address()
        arguments = (peers, mb, contenders, options.repeat, barrier, shared, results)
        workers = [context.Process(target=be, args=(number, *arguments)) for number in range(peers)]
        try:
            for process in workers:
                process.start()
            collected = [results.get(timeout=1200) for _ in workers]
        finally:
            for process in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid or 0, signal.SIGKILL)  # with its daemons
                process.join()
    if failed := [each for each in collected if "failed" in each]:
        raise RuntimeError(failed[0]["failed"])
    found = {}
    for name in contenders:
        turns = list(zip(*(each[name] for each in collected), strict=True))
        found[name] = {
            "seconds": statistics.median(max(seconds for seconds, _ in turn) for turn in turns),
            "cpu_seconds": statistics.fmean(sum(cpu for _, cpu in turn) for turn in turns),  # counted in ticks of 10 ms
        }
    return found


def be(
    number: int, peers: int, mb: float, contenders: list[str], repeat: int, barrier: Any, shared: Any, results: Any
) -> None:
    """Be one peer; what it starts is in its process group."""
    os.setsid()
    torch.set_num_threads(1)
    try:
        elements = round(mb * 1e6 / 4)
        with contextlib.ExitStack() as stack:
            steps = {
                name: MAKERS[name](stack, number, peers, elements, barrier, shared)
                for name in CONTENDERS
                if name in contenders
            }
            results.put(take_turns(steps, pattern.brought(number, elements), peers, repeat, barrier))
            barrier.wait(PATIENCE)
            time.sleep(3600)  # until killed with all that it started
    except BaseException as error:
        results.put({"failed": f"peer {number}: {error!r}"})
        raise


def take_turns(
    steps: dict[str, tuple[Bring, Step]], source: torch.Tensor, peers: int, repeat: int, barrier: Any
) -> dict[str, list[tuple[float, float]]]:
    """Run all contenders in turn; give the seconds and CPU seconds of each turn but the first."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for turn in range(repeat + 1):
        for name, (bring, step) in steps.items():
            bring(source)
            barrier.wait(PATIENCE)
            began, cpu = time.perf_counter(), cpu_of_group()
            result = step()
            seconds = time.perf_counter() - began
            barrier.wait(PATIENCE)  # daemons may still be busy for others
            if turn:
                taken[name].append((seconds, cpu_of_group() - cpu))
            pattern.verify(result, range(peers), name, mean=True, slack=1e-3)
    return taken


def cpu_of_group() -> float:
    """CPU seconds of all processes in our process group that live."""
    group, ticks = str(os.getpgrp()), 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[2] == group:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _ours(encrypt: bool) -> Callable[..., tuple[Bring, Step]]:
    def make(
        stack: contextlib.ExitStack, number: int, peers: int, elements: int, barrier: Any, shared: Any
    ) -> tuple[Bring, Step]:
        key = f"mesh-{encrypt}"
        if number:
            barrier.wait(PATIENCE)
        config = ictp2p.Config.local(
            cluster=f"c{number}", token=TOKEN, encrypt=encrypt, join=(shared[key],) if number else ()
        )
        peer = stack.enter_context(ictp2p.Peer(config))
        if not number:
            shared[key] = str(peer.address)
            barrier.wait(PATIENCE)
        peer.gather(peers, PATIENCE)
        tensor = torch.empty(elements)

        def step() -> torch.Tensor:
            peer.all_reduce(tensor)
            return tensor

        return tensor.copy_, step

    return make


def _torchft(
    stack: contextlib.ExitStack, number: int, peers: int, elements: int, barrier: Any, shared: Any
) -> tuple[Bring, Step]:
    import torch.distributed as dist
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    patience = timedelta(seconds=PATIENCE)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=patience),
        load_state_dict=lambda state: None,
        state_dict=dict,
        min_replica_size=peers,
        use_async_quorum=False,
        replica_id=f"peer_{number}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=shared["lighthouse"],
        hostname="localhost",
        timeout=patience,
        quorum_timeout=patience,
        init_sync=False,
    )
    stack.callback(manager.shutdown, wait=False)
    tensor = torch.empty(elements)

    def step() -> torch.Tensor:
        manager.start_quorum()
        manager.allreduce(tensor).wait()
        assert manager.should_commit(), "torchft did not commit"
        return tensor

    return tensor.copy_, step


def _hivemind(
    stack: contextlib.ExitStack, number: int, peers: int, elements: int, barrier: Any, shared: Any
) -> tuple[Bring, Step]:
    import hivemind

    multiprocessing.set_start_method("fork", force=True)  # it passes what cannot be pickled to its processes
    if number:
        barrier.wait(PATIENCE)
    dht = hivemind.DHT(initial_peers=shared["dht"] if number else [], start=True)
    if not number:
        shared["dht"] = [str(address) for address in dht.get_visible_maddrs()]
        barrier.wait(PATIENCE)
    averager = hivemind.DecentralizedAverager(
        [torch.zeros(elements)],
        dht,
        start=True,
        prefix="benchmark",
        target_group_size=peers,
        min_matchmaking_time=2.0,
        request_timeout=1.0,
    )
    result = torch.empty(elements)

    def bring(source: torch.Tensor) -> None:
        with averager.get_tensors() as tensors:
            tensors[0].copy_(source)

    def step() -> torch.Tensor:
        averager.step(timeout=PATIENCE)
        with averager.get_tensors() as tensors:
            return result.copy_(tensors[0])

    return bring, step


MAKERS = {OURS: _ours(True), CLEAR: _ours(False), TORCHFT: _torchft, HIVEMIND: _hivemind}

if __name__ == "__main__":
    main()
