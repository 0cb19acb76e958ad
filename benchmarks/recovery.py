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
from collections.abc import Sequence
from typing import Any

import arena
import pattern
import torch
from arguments import count, megabytes, output, whole

from ictp2p.bulk import Bulk
from ictp2p.collectives.channel import Attachment, CollectiveTimeout, Outgoing, ParticipantLost, Receiver
from ictp2p.types import PeerId

CLEAN = 5


def main() -> None:
    """Let the last rank die again and again; print, and perhaps save, one row for each time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=whole(2), default=4)
    parser.add_argument("--mb", type=megabytes, default=100.0, help="tensor size in MB (1e6 bytes)")
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
    elements, victim = max(1, int(mb * 1e6 / 4)), rank.ranks - 1
    doomed = rank.number == victim
    tensor, output = pattern.brought(rank.number, elements), torch.zeros(elements)
    bulk = await rank.bulk("recovery", sealed=True)
    chosen, survivors = rank.plan(elements), rank.plan(elements, among=range(victim))
    clean = []
    for turn in range(CLEAN + 1):
        await asyncio.to_thread(rank.agree, f"clean-{turn}")
        began = time.perf_counter()
        await rank.reduce(chosen, [tensor], [output], bulk, turn)
        clean.append(time.perf_counter() - began)
    links = Mortal(bulk, 4 * elements // 2, signal.SIGSTOP if stop else signal.SIGKILL) if doomed else bulk
    await asyncio.to_thread(rank.agree, "now")
    began = time.perf_counter()
    try:
        await rank.reduce(chosen, [tensor], [output], links, CLEAN + 1)
    except (ParticipantLost, CollectiveTimeout):
        noticed = time.perf_counter() - began
    else:
        raise AssertionError("nobody died")
    await rank.reduce(survivors, [tensor], [output], bulk, CLEAN + 2)
    total = time.perf_counter() - began
    pattern.verify(output, range(victim), "the survivors' sum")
    usual = statistics.median(clean[1:])
    return {"clean": usual, "noticed": noticed, "result": total, "later": total - usual}


class Mortal:
    """The connections of a rank that ends itself in the middle of a collective.

    It does when it is asked for more than half a tensor's bytes. Each element leaves every rank, as a contribution or
    from the root of its sum, so then nobody can have all of the result: a rank that ends when it has half of the result
    itself, may have sent what the others lacked.

    Args:
        bulk: what it has.
        most: bytes that leave it at most.
        end: the signal that it sends itself.
    """

    def __init__(self, bulk: Bulk, most: int, end: signal.Signals) -> None:
        self.slots = bulk.slots
        self._bulk, self._left, self._end = bulk, most, end

    async def attach(
        self, tag: bytes, receiver: Receiver, peers: Sequence[PeerId], *, whole: bytes | None = None, **options: Any
    ) -> Attachment:
        """Attach `receiver`, and count what it gives."""
        if whole is not None:
            self._spend(len(whole))
        next_frame = receiver.next_frame

        def counted(peer: PeerId) -> Outgoing | None:
            frame = next_frame(peer)
            if frame is not None:
                self._spend(frame.size or sum(memoryview(view).nbytes for view in frame.views))
            return frame

        receiver.next_frame = counted  # type: ignore[method-assign]
        return await self._bulk.attach(tag, receiver, peers, whole=whole, **options)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            os.kill(os.getpid(), self._end)
            signal.pause()  # another thread may have been the one to take it


if __name__ == "__main__":
    main()
