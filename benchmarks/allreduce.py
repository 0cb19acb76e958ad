"""All-reduce of one float32 tensor over loopback: ours (sealed, and in clear) in turn with torch's Gloo.

    python benchmarks/allreduce.py --ranks 2 3 4 --mb 100 --json allreduce.json

Each rank is a process that runs all contenders in turn (A B C A B C ...), so that they share whatever else the machine
does; medians are reported. CPU seconds are those of all ranks together, per GB (1e9 bytes) of tensor.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
import uvloop

from ictp2p.bulk import Bulk, BulkProfile
from ictp2p.collectives.channel import RoundTag
from ictp2p.collectives.execute import all_reduce
from ictp2p.collectives.planner import LinkEstimate, PlanRequest, plan
from ictp2p.types import PeerId


def main() -> None:
    """Measure each number of ranks and print, and perhaps save, one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--mb", type=float, default=100.0, help="tensor size in MB (1e6 bytes)")
    parser.add_argument("--repeat", type=int, default=7, help="measurements of each contender")
    parser.add_argument("--plaintext", action="store_true", help="report our unsealed mode as `ours`")
    parser.add_argument("--kind", help="schedule to use; the planner's choice if not given")
    parser.add_argument("--json", type=Path, help="file to write the rows to")
    options = parser.parse_args()
    rows = [measure(ranks, options) for ranks in options.ranks]
    print(f"{'ranks':>5} {'MB':>6} {'sealed s':>9} {'clear s':>9} {'gloo s':>9} {'sealed':>7} {'clear':>7}   CPU s/GB")
    for row in rows:
        times = " ".join(f"{row[f'{name}_seconds']:9.4f}" for name in ("sealed", "plaintext", "gloo"))
        ratios = " ".join(f"{row['gloo_seconds'] / row[f'{name}_seconds']:6.2f}x" for name in ("sealed", "plaintext"))
        print(f"{row['ranks']:5} {row['mb']:6g} {times} {ratios}   {row['cpu_seconds_per_gb']}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


def measure(ranks: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run all contenders on `ranks` processes and summarize."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    arguments = (ranks, port, options.mb, options.repeat, options.kind, results)
    workers = [context.Process(target=worker, args=(rank, *arguments), daemon=True) for rank in range(ranks)]
    for process in workers:
        process.start()
    collected = [results.get(timeout=300) for _ in workers]
    for process in workers:
        process.join()
    names = ("sealed", "plaintext", "gloo")
    seconds = {n: statistics.median(max(r[n][i][0] for r in collected) for i in range(options.repeat)) for n in names}
    cpu = {n: statistics.median(sum(r[n][i][1] for r in collected) for i in range(options.repeat)) for n in names}
    ours = "plaintext" if options.plaintext else "sealed"
    return {
        "ranks": ranks,
        "mb": options.mb,
        "ours": ours,
        "ours_seconds": seconds[ours],
        **{f"{name}_seconds": seconds[name] for name in names},
        "ratio_to_gloo": seconds["gloo"] / seconds[ours],
        "cpu_seconds_per_gb": {name: round(cpu[name] / (options.mb / 1e3), 3) for name in names},
    }


def worker(rank: int, ranks: int, port: int, mb: float, repeat: int, kind: str | None, results: Any) -> None:
    """Be one rank."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, ranks, is_master=rank == 0, timeout=timedelta(seconds=60))
    gloo: Any = dist.ProcessGroupGloo(store, rank, ranks, timedelta(seconds=60))
    tensor = torch.full((int(mb * 1e6 / 4),), float(rank + 1))
    output = torch.zeros_like(tensor)
    expected = sum(range(1, ranks + 1))

    async def run() -> dict[str, list[tuple[float, float]]]:
        contenders: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {
            "sealed": await contender(rank, ranks, store, tensor, output, kind, sealed=True),
            "plaintext": await contender(rank, ranks, store, tensor, output, kind, sealed=False),
        }
        measured: dict[str, list[tuple[float, float]]] = {"sealed": [], "plaintext": [], "gloo": []}
        for turn in range(repeat + 1):
            for name, times in measured.items():
                output.fill_(0) if name != "gloo" else output.copy_(tensor)
                await asyncio.to_thread(lambda: gloo.barrier().wait())  # our loop still hands out what others need
                began, cpu = time.perf_counter(), time.process_time()
                if name == "gloo":
                    gloo.allreduce([output]).wait()
                else:
                    await contenders[name](turn)
                if turn:  # the first turn opens connections
                    times.append((time.perf_counter() - began, time.process_time() - cpu))
                assert output[0] == output[-1] == expected, (name, output[0], output[-1])
        return measured

    results.put(uvloop.run(run()))
    gloo.barrier().wait()


async def contender(
    rank: int, ranks: int, store: Any, tensor: torch.Tensor, output: torch.Tensor, kind: str | None, *, sealed: bool
) -> Callable[[int], Coroutine[Any, Any, None]]:
    """Set up our data plane among the ranks and give what runs one all-reduce."""
    loop = asyncio.get_running_loop()
    names = [PeerId(f"{number:032x}") for number in range(ranks)]

    def keys(peer: PeerId, context: bytes) -> tuple[bytes, bytes]:
        send, receive = (
            hashlib.blake2b(context + bytes.fromhex(i), digest_size=16).digest() for i in (names[rank], peer)
        )
        return send, receive

    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        port = int(store.get(f"{sealed}-{peer}"))
        async with asyncio.timeout(timeout):
            transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        return transport

    bulk = Bulk(names[rank], keys, dial, profile=replace(BulkProfile(), sealed=sealed))

    class Accept(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            bulk.accept(cast("asyncio.Transport", transport))

    server = await loop.create_server(Accept, "127.0.0.1", 0)
    store.set(f"{sealed}-{names[rank]}", str(server.sockets[0].getsockname()[1]))
    links = {(a, b): LinkEstimate() for a in names for b in names if a != b}
    chosen = plan(PlanRequest(tuple(names), len(tensor), 4, links, only=kind)).plan
    digest = chosen.digest()

    async def reduce_once(turn: int) -> None:
        tag = RoundTag(b"benchmark", turn, 0, digest)
        await all_reduce(chosen, rank, [tensor], [output], bulk, tag, op="sum")

    return reduce_once


if __name__ == "__main__":
    main()
