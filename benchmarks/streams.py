"""Plain TCP over shaped lines: what one connection gets, and whether several between the same pair get more.

    python benchmarks/streams.py --json streams.json

Two processes in network namespaces of their own (`emulator`). Each sends the other as many bytes as its part of an
all-reduce, over 1, 2 or 4 warm connections that share them evenly, with bbr or cubic, both directions at once: blocking
sockets in threads, nothing sealed, nothing added up. It is what the line and the kernel allow, and so what `wan.py`
puts beside our own (`line` there is one connection with bbr). Needs root, on Linux.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from arguments import count, megabytes, named, output
from emulator import PAYLOAD, Emulator, enter, require_root

SCENES = {
    "100 Mbit/s, 100 ms": (100, 50, 0.0),
    "100 Mbit/s, 20 ms, 0.1 % loss": (100, 10, 0.001),
    "100 Mbit/s, 100 ms, 0.1 % loss": (100, 50, 0.001),
    "1 Gbit/s, 100 ms": (1000, 50, 0.0),
}
"""Mbit/s, one-way milliseconds, loss."""
PORT = 7460
PATIENCE = 120.0
_CHUNK = 256 * 1024
_BUFFER = 16 * 1024 * 1024
"""As `bulk.tuning` has it for long ways."""


class Streams:
    """Connections to one other process.

    Args:
        first: whether we listen and the other one dials.
        host: the address of who listens.
        port: where.
        count: how many connections.
        control: congestion control; the host's if None.
    """

    def __init__(self, first: bool, host: str, port: int, count: int, control: str | None) -> None:
        if first:
            with socket.create_server((host, port)) as server:
                self._sockets = [server.accept()[0] for _ in range(count)]
        else:
            self._sockets = [_dialed(host, port) for _ in range(count)]
        for each in self._sockets:
            each.settimeout(PATIENCE)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _BUFFER)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            if control is not None:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())

    def exchange(self, size: int) -> float:
        """Send `size` bytes and receive as many; give the seconds."""
        part = size // len(self._sockets)
        began = time.perf_counter()
        threads = [
            threading.Thread(target=work, args=(each, part)) for each in self._sockets for work in (_send, _take)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began


def _dialed(host: str, port: int) -> socket.socket:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((host, port), timeout=PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _send(endpoint: socket.socket, size: int) -> None:
    chunk = memoryview(bytes(_CHUNK))
    for start in range(0, size, _CHUNK):
        endpoint.sendall(chunk[: min(_CHUNK, size - start)])


def _take(endpoint: socket.socket, size: int) -> None:
    place = memoryview(bytearray(_CHUNK))
    while size:
        size -= endpoint.recv_into(place, min(size, _CHUNK))


def available(text: str) -> str:
    """Take a congestion control that this kernel has."""
    with socket.socket() as endpoint:
        try:
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, text.encode())
        except OSError as error:
            raise argparse.ArgumentTypeError(f"this kernel has no {text!r}: {error.strerror}") from None
    return text


def main() -> None:
    """Measure every scene; print, and perhaps save, its rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", **named(SCENES))
    parser.add_argument("--mb", type=megabytes, default=40.0, help="MB (1e6 bytes) each way")
    parser.add_argument("--counts", type=count, nargs="+", default=[1, 2, 4])
    parser.add_argument("--controls", type=available, nargs="+", default=["bbr", "cubic"])
    parser.add_argument("--repeat", type=count, default=3)
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    require_root(parser)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rows = []
    for name, (mbit, delay, loss) in SCENES.items():
        if options.only and name not in options.only:
            continue
        with Emulator((mbit, mbit), delay=delay, loss=loss, offload=not loss) as network:
            found = measure(network, options)
        ideal = options.mb * 8 / mbit / PAYLOAD
        for (control, connections), seconds in found.items():
            share = ideal / seconds
            row = {"scene": name, "control": control, "connections": connections, "seconds": seconds, "share": share}
            rows.append(row)
            print(f"{name:32} {control:6} x{connections}: {seconds:6.2f} s, {share:.3f} of the line", flush=True)
        if options.json:
            load = os.getloadavg()[0]
            options.json.write_text(json.dumps({"mb": options.mb, "load": load, "rows": rows}, indent=1) + "\n")


def measure(network: Emulator, options: argparse.Namespace) -> dict[tuple[str, int], float]:
    """Let both nodes take turns over all numbers of connections and controls; give the median seconds of the slower."""
    context = multiprocessing.get_context("spawn")
    results, barrier = context.Queue(), context.Barrier(2)
    arguments = (options.controls, options.counts, int(options.mb * 1e6), options.repeat, barrier, results)
    workers = [
        context.Process(target=be, args=(node, path, network.address(0), *arguments), daemon=True)
        for node, path in enumerate(network.paths())
    ]
    try:
        for process in workers:
            process.start()
        one, other = (results.get(timeout=1800) for _ in workers)
    finally:
        for process in workers:
            process.kill()
            process.join()
    return {key: slower(one[key], other[key]) for key in one}


def slower(one: Sequence[float], other: Sequence[float]) -> float:
    """Give the median over turns of what the slower end took, the first turn left out."""
    return statistics.median(max(pair) for pair in list(zip(one, other, strict=True))[1:])


def be(
    node: int,
    path: str,
    host: str,
    controls: list[str],
    counts: list[int],
    size: int,
    repeat: int,
    barrier: Any,
    results: Any,
) -> None:
    """Be one node."""
    enter(path)
    streams = {
        (control, count): Streams(not node, host, PORT + number, count, control)
        for number, (control, count) in enumerate((control, count) for control in controls for count in counts)
    }
    taken: dict[tuple[str, int], list[float]] = {key: [] for key in streams}
    for _ in range(repeat + 1):
        for key, each in streams.items():
            barrier.wait(PATIENCE)
            taken[key].append(each.exchange(size))
    results.put(taken)
    barrier.wait(PATIENCE)  # a queue's thread still has to write


if __name__ == "__main__":
    main()
