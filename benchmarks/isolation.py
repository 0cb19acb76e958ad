"""Where should the peer live? A training program that computes, with its peer in a thread or a process, in turn.

    python benchmarks/isolation.py --repeat 2 --json isolation.json

Two workers on loopback, each a program of its own, one cluster each. The first one trains while the other only
answers, and what the other sees is what counts: round trips of control messages to the first, whether it suspects it,
how long an all-reduce takes that is under way while the first computes. It computes with

- `nothing`: it waits,
- `torch`: matrix products, which release the interpreter lock,
- `python`: a loop of pure Python, which gives the lock up every 5 ms, if asked,
- `call`: one call after the other that holds the lock for about three seconds (sorting a list).

CPU seconds per GB are of both programs and the peer's process, while nothing else is computed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from arguments import count, megabytes, output, positive

import ictp2p
from ictp2p.errors import IctError

TOKEN = "a token for this benchmark only"
WORKS = ("nothing", "torch", "python", "call")
PATIENCE = 120.0
WAITS = {"complete": 15.0}
"""So that an all-reduce that cannot be decided ends soon."""


def main() -> None:
    """Run all cases in turn; print, and perhaps save, one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mb", type=megabytes, default=100.0, help="of the tensor (1e6 bytes)")
    parser.add_argument("--repeat", type=count, default=2, help="of all cases")
    parser.add_argument("--seconds", type=positive, default=10.0, help="to compute before the all-reduces")
    parser.add_argument("--reduces", type=count, default=3, help="all-reduces while it computes")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    rows = []
    for turn in range(options.repeat):
        for work in options.works:
            for isolation in ("thread", "process"):
                rows.append({"turn": turn, "work": work, "isolation": isolation, **case(work, isolation, options)})
                print("  ".join(f"{key} {_shown(value)}" for key, value in rows[-1].items()), flush=True)
    print()
    for row in summary(rows):
        print("  ".join(f"{key} {_shown(value)}" for key, value in row.items()))
    if options.json:
        told = {"load": os.getloadavg(), "mb": options.mb, "rows": rows, "summary": summary(rows)}
        options.json.write_text(json.dumps(told, indent=2) + "\n")


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The median of each figure of each case."""
    cases = dict.fromkeys((row["work"], row["isolation"]) for row in rows)
    found = []
    for work, isolation in cases:
        of = [row for row in rows if (row["work"], row["isolation"]) == (work, isolation)]
        figures = [key for key, value in of[0].items() if isinstance(value, float)]
        found.append(
            {
                "work": work,
                "isolation": isolation,
                **{key: statistics.median(row[key] for row in of) for key in figures},
            }
        )
    return found


def case(work: str, isolation: str, options: argparse.Namespace) -> dict[str, float]:
    """One pair of programs, from their start to their end."""
    context = multiprocessing.get_context("spawn")
    ends, programs = [], []
    for role in (answer, train):
        ours, theirs = context.Pipe()
        ends.append(ours)
        programs.append(context.Process(target=role, args=(theirs, work, isolation, options), daemon=False))
        programs[-1].start()
        theirs.close()
        if role is answer:
            address = _heard(ours)
        else:
            ours.send(address)
    answering, training = ends
    _heard(training)  # both take part
    answering.send("count")
    _heard(answering)
    training.send("compute")
    time.sleep(options.seconds)
    answering.send("reduce")
    training.send("reduce")
    seen, did = _heard(answering), _heard(training)
    for program in programs:
        program.join(PATIENCE)
    gigabytes = (options.reduces + 1) * options.mb / 1e3
    return {**seen["figures"], **did["figures"], "cpu_per_gb": (seen["cpu"] + did["cpu"]) / gigabytes}


def answer(end: Connection, work: str, isolation: str, options: argparse.Namespace) -> None:
    """Be the one that only answers."""
    doubts: list[str] = []
    with ictp2p.Peer(ictp2p.Config.local(cluster="b", token=TOKEN, global_timeouts=WAITS)) as peer:
        peer.on_event(lambda event: doubts.append(event["status"]) if event["kind"] == "member" else None)
        end.send(str(peer.address))
        peer.gather(2, timeout=PATIENCE)
        peer.barrier()
        end.recv()
        doubts.clear()
        end.send("counts")
        end.recv()
        figures = peer.stats()
        cpu, times = _cpu(peer), reduce(peer, options)
        seen = {
            "round_trip_p50_ms": figures["control_round_trip_p50"] * 1e3,
            "round_trip_p99_ms": figures["control_round_trip_p99"] * 1e3,
            "suspected": float(doubts.count("suspect")),
            "declared_dead": float(doubts.count("dead")),
            "reduce_s": statistics.median(times) if times else float("nan"),
            "reduces_failed": float(options.reduces - len(times)),
        }
        end.send({"figures": seen, "cpu": _cpu(peer) - cpu})


def train(end: Connection, work: str, isolation: str, options: argparse.Namespace) -> None:
    """Be the one that computes."""
    config = ictp2p.Config.local(
        cluster="a", token=TOKEN, join=(end.recv(),), isolation=isolation, global_timeouts=WAITS
    )
    torch.set_num_threads(1)
    with ictp2p.Peer(config) as peer:
        peer.gather(2, timeout=PATIENCE)
        peer.barrier()
        step = _computation(work)
        end.send("takes part")
        end.recv()
        found: dict[str, Any] = {}

        def reducing() -> None:
            end.recv()
            cpu = _cpu(peer)
            reduce(peer, options)
            found["cpu"] = _cpu(peer) - cpu

        thread = threading.Thread(target=reducing)
        thread.start()
        steps, began = 0, time.monotonic()
        while thread.is_alive():
            step()
            steps += 1
        found["figures"] = {"steps_per_s": steps / (time.monotonic() - began)}
        end.send(found)


def reduce(peer: ictp2p.Peer, options: argparse.Namespace) -> list[float]:
    """Seconds of each all-reduce that both were in; one warms up."""
    tensor, times = torch.ones(int(options.mb * 1e6 / 4)), []
    for turn in range(options.reduces + 1):
        began = time.monotonic()
        try:
            alone = len(peer.all_reduce(tensor).clusters) < 2
        except IctError as error:
            print(f"  {peer.cluster}: {type(error).__name__}: {error}", flush=True)
            continue
        if turn and not alone:
            times.append(time.monotonic() - began)
    return times


def _computation(work: str) -> Callable[[], object]:
    if work == "nothing":
        return lambda: time.sleep(0.01)
    if work == "torch":
        one = torch.randn(256, 256)
        return lambda: one @ one
    if work == "python":
        return lambda: sum(n * n for n in range(1000))
    size, source = 100_000, random.Random(1)
    while True:
        numbers = [source.random() for _ in range(size)]
        began = time.monotonic()
        sorted(numbers)
        took = time.monotonic() - began
        if took > 2.5 or size > 20_000_000:
            return lambda: sorted(numbers)
        size = int(size * min(8.0, max(1.2, 3.0 / took)))


def _cpu(peer: ictp2p.Peer) -> float:
    """CPU seconds of this process, and of its peer's."""
    own = time.process_time()
    line = getattr(peer._handle, "line", None)
    if line is None:
        return own
    fields = Path(f"/proc/{line.process}/stat").read_text().rpartition(")")[2].split()
    return own + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _heard(end: Connection) -> Any:
    if not end.poll(PATIENCE * 2):
        raise TimeoutError("a program says nothing")
    return end.recv()


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
