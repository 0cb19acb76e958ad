"""A rank that is killed or stopped, in real processes: every survivor learns who it was, within the deadline."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.torch_backend import ranks

STALL = 3.0


def survive(harm: str) -> dict[str, Any]:
    """Reduce until rank 2 harms itself in the middle of it."""
    from ictp2p.torch_backend import Options, RankLost

    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "ictp2p",
        init_method=os.environ["STORE"],
        rank=rank,
        world_size=3,
        timeout=timedelta(seconds=10 * ranks.SECONDS),  # nobody may wait for it
        pg_options=Options(stall=STALL),
    )
    vector = torch.ones(4_000_000)
    dist.all_reduce(vector)
    dist.barrier()
    works = [dist.all_reduce(vector.clone(), async_op=True) for _ in range(6)]
    if rank == 2:
        works[1].wait()  # type: ignore[union-attr]
        os.kill(os.getpid(), getattr(signal, harm))
    found: dict[str, Any] = {}
    try:
        for work in works:
            work.wait()  # type: ignore[union-attr]
        dist.barrier()
    except RankLost as error:
        found = {"ranks": error.ranks}
    try:
        dist.recv(torch.zeros(1), None)
    except RankLost as error:
        found["any"] = str(error)
    store = dist.FileStore(os.environ["STORE"].removeprefix("file://") + "-ends", 2)
    store.set(str(rank), "")
    store.wait(["0", "1"], timedelta(seconds=ranks.SECONDS))  # who ends is lost as well, to a slower one
    if harm == "SIGSTOP":
        dist.destroy_process_group()
    return found  # else the script ends without: that must not crash


@pytest.mark.real
@pytest.mark.timeout(150)
@pytest.mark.parametrize("harm", ["SIGKILL", "SIGSTOP"])
def test_survivors_name_who_is_lost_and_can_end(harm: str, tmp_path: Path) -> None:
    processes = [ranks.start(survive, rank, 3, tmp_path, harm=harm) for rank in range(3)]
    try:
        for found in [ranks.end(process) for process in processes[:2]]:
            assert found["ranks"] == [2]
            assert "any" in found
    finally:
        for process in processes:
            process.kill()
            process.communicate()
