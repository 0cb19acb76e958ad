"""One of four dies, or stops, in the middle of an all-reduce: how much later do the others hold the right result?

    python benchmarks/recovery.py --ranks 4 --mb 100 --repeat 5
    python benchmarks/recovery.py --ranks 4 --mb 100 --repeat 3 --stop

The data plane alone, without agreement: the survivors see the failure, plan again among themselves and reduce the same
contributions anew. Their time is counted from the beginning of the attempt that failed, and set against clean runs of
all ranks in the same processes. A process that was killed is seen by the reset of its connections, one that was stopped
by the stall deadline.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import time

import arena
import torch
from arguments import count, output, positive, whole

from ictp2p.collectives.channel import CollectiveTimeout, ParticipantLost

CLEAN = 5


def main() -> None:
    """Let the last rank die again and again; print, and perhaps save, one row for each time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=whole(2), default=4)
    parser.add_argument("--mb", type=positive, default=100.0, help="tensor size in MB (1e6 bytes)")
    parser.add_argument("--repeat", type=count, default=5, help="deaths")
    parser.add_argument("--stop", action="store_true", help="SIGSTOP instead of SIGKILL")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    rows = []
    for _ in range(options.repeat):
        found = arena.processes(options.ranks, worker, options.mb, options.stop, dying=1)
        if failed := [each for each in found if isinstance(each, BaseException)]:
            raise failed[0]
        rows.append({key: max(each[key] for each in found) for key in found[0]})
        print("  ".join(f"{key} {value:.3f} s" for key, value in rows[-1].items()))
    print(f"median later than clean: {statistics.median(row['later'] for row in rows):.3f} s")
    if options.json:
        options.json.write_text(json.dumps({"stop": options.stop, "rows": rows}, indent=2) + "\n")


async def worker(rank: arena.Rank, mb: float, stop: bool) -> dict[str, float]:
    """Be one rank; the last one does not return."""
    elements, victim = int(mb * 1e6 / 4), rank.ranks - 1
    tensor, output = torch.full((elements,), float(rank.number + 1)), torch.zeros(elements)
    bulk = await rank.bulk("recovery", sealed=True)
    chosen, survivors = rank.plan(elements), rank.plan(elements, among=range(victim))
    clean = []
    for turn in range(CLEAN + 1):
        await asyncio.to_thread(rank.agree, f"clean-{turn}")
        began = time.perf_counter()
        await rank.reduce(chosen, [tensor], [output], bulk, turn)
        clean.append(time.perf_counter() - began)
    done = 0

    def progress(start: int, end: int) -> None:
        nonlocal done
        done += end - start
        if rank.number == victim and 2 * done > elements:
            os.kill(os.getpid(), signal.SIGSTOP if stop else signal.SIGKILL)

    await asyncio.to_thread(rank.agree, "now")
    began = time.perf_counter()
    try:
        await rank.reduce(chosen, [tensor], [output], bulk, CLEAN + 1, progress=progress)
    except (ParticipantLost, CollectiveTimeout):
        noticed = time.perf_counter() - began
    else:
        raise AssertionError("nobody died")
    await rank.reduce(survivors, [tensor], [output], bulk, CLEAN + 2)
    total = time.perf_counter() - began
    assert bool((output == sum(range(1, rank.ranks))).all())
    usual = statistics.median(clean[1:])
    return {"clean": usual, "noticed": noticed, "result": total, "later": total - usual}


if __name__ == "__main__":
    main()
