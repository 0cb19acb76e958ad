"""A newcomer takes the state from its providers over shaped lines: how long, against what its bytes need on them.

    python benchmarks/joining.py --mb 100 --repeat 3 --json joining.json

Real peers, sealed, in network namespaces of their own (`emulator`): the newcomer has 200 Mbit/s down, each of the two
that hold the state 100 Mbit/s up (`--down`, `--up`, `--providers`), round trips of `--delay` milliseconds twice. They
call `sync_state`; then the newcomer comes up, knows nobody but one address, and calls it too. Its providers call it
with it, as a training loop does at each outer step.

*Line* is the bytes over what the newcomer can receive, or the providers send together, less the headers of TCP, IP and
Ethernet. *Fetch* is from the first question to the last verified byte, *call* all of the newcomer's `sync_state`,
agreement and copying to its tensors included. Each repetition is a new newcomer. Needs root, on Linux.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from typing import Any

import pattern
import torch
from arguments import count, megabytes, output, positive, seconds
from emulator import PAYLOAD, Emulator, enter, renounce, require_root

import ictp2p

TOKEN = "benchmark-of-a-newcomer-to-a-mesh"
PORT = 7450
PATIENCE = 300.0


def main() -> None:
    """Measure newcomers one after the other; print, and perhaps save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mb", type=megabytes, default=100.0, help="size of the state in MB (1e6 bytes)")
    parser.add_argument("--delay", type=seconds, default=10.0, help="one-way delay in milliseconds")
    parser.add_argument("--up", type=positive, default=100.0, help="Mbit/s that a provider can send")
    parser.add_argument("--down", type=positive, default=200.0, help="Mbit/s that the newcomer can receive")
    parser.add_argument("--providers", type=count, default=2, help="peers that hold the state")
    parser.add_argument(
        "--unprivileged", action="store_true", help="do without CAP_NET_ADMIN, which buffers beyond the host's take"
    )
    parser.add_argument("--repeat", type=count, default=3, help="newcomers")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    require_root(parser)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    line = options.mb * 8 / PAYLOAD / min(options.down, options.providers * options.up)
    rows = [measure(options) for _ in range(options.repeat)]
    for row in rows:
        row["over_line"], row["call_over_line"] = row["fetch_seconds"] / line, row["call_seconds"] / line
        print(
            f"line {line:.2f} s, fetch {row['fetch_seconds']:.2f} s ({row['over_line']:.3f}), call "
            f"{row['call_seconds']:.2f} s ({row['call_over_line']:.3f}), newcomer's CPU {row['cpu_seconds']:.2f} s"
        )
    print(f"median fetch over the line: {statistics.median(row['over_line'] for row in rows):.3f}, load {load()}")
    if options.json:
        asked = {key: value for key, value in vars(options).items() if key != "json"}
        found = {**asked, "line_seconds": line, "load": load(), "rows": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def load() -> float:
    """The machine's load."""
    return round(os.getloadavg()[0], 1)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Let one newcomer join those who hold the state."""
    context = multiprocessing.get_context("spawn")
    peers = options.providers + 1
    results, founded, synced = context.Queue(), context.Event(), context.Barrier(peers)
    with Emulator((options.up,) * peers, (options.down,) * peers, options.delay) as network:
        hosts = [network.address(node) for node in range(peers)]
        workers = [
            context.Process(target=be, args=(node, path, hosts, options, founded, synced, results), daemon=True)
            for node, path in enumerate(network.paths())
        ]
        try:
            for process in workers:
                process.start()
            found: dict[str, Any] = results.get(timeout=PATIENCE)
        finally:
            for process in workers:
                process.kill()
                process.join()
    if "failed" in found:
        raise RuntimeError(found["failed"])
    return found


def be(
    node: int, path: str, hosts: list[str], options: argparse.Namespace, founded: Any, synced: Any, results: Any
) -> None:
    """Be a provider, or the newcomer, which is the last one."""
    enter(path)
    if options.unprivileged:
        renounce()
    torch.set_num_threads(1)
    try:
        join(node, hosts, options.mb, founded, synced, results)
    except BaseException as error:
        results.put({"failed": f"node {node}: {error!r}"})
        raise


def join(node: int, hosts: list[str], mb: float, founded: Any, synced: Any, results: Any) -> None:
    """Hold the state, or fetch it and say what that took."""
    newcomer = node == len(hosts) - 1
    elements = int(mb * 1e6 / 4 / 10)
    state = {f"tensor{n}": torch.zeros(elements) if newcomer else pattern.brought(n, elements) for n in range(10)}
    config = ictp2p.Config.wan(
        cluster=f"c{node}", token=TOKEN, listen=f"{hosts[node]}:{PORT}", join=(f"{hosts[0]}:{PORT}",) if node else ()
    )
    if node:
        founded.wait(PATIENCE)
    if newcomer:
        synced.wait(PATIENCE)
    events: list[dict[str, Any]] = []
    peer = ictp2p.Peer(config)
    peer.on_event(events.append)
    with peer:
        founded.set()
        if not newcomer:
            peer.gather(len(hosts) - 1, PATIENCE)
            peer.sync_state(state)
            synced.wait(PATIENCE)
        peer.gather(len(hosts), PATIENCE)
        began, cpu = time.perf_counter(), time.process_time()
        peer.sync_state(state)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        for n in range(10):
            pattern.verify(state[f"tensor{n}"], [n], f"tensor{n}")
        if newcomer:
            fetched = next(event for event in events if event["kind"] == "state_fetched")
            assert fetched["bytes"] >= mb * 1e6, fetched
            results.put({"fetch_seconds": fetched["seconds"], "call_seconds": seconds, "cpu_seconds": cpu})
        time.sleep(PATIENCE)  # never to its end: all are killed when the newcomer has said what it took


if __name__ == "__main__":
    main()
