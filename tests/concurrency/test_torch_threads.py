"""Who computes alone when a loop does: nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ictp2p.concurrency import torch_threads
from ictp2p.concurrency.loop_thread import LoopThread


@pytest.fixture
def team() -> Iterator[int]:
    """As many threads as torch has on a machine of three cores, if nobody says otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def later() -> int:
    """What a thread begins with that has not used torch yet."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_a_loop_computes_alone_and_nobody_else_does(team: int) -> None:
    loop = LoopThread("test")
    assert loop.call(torch.get_num_threads) == 1
    assert (torch.get_num_threads(), later()) == (team, team)
    torch.set_num_threads(2)
    assert loop.call(torch.get_num_threads) == 1, "nor is it told otherwise by another"
    loop.close()


def test_a_loop_runs_though_no_thread_is_left_to_put_anything_back(team: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.get_num_threads).result()
        with monkeypatch.context() as patched:
            patched.setattr(torch_threads.threading.Thread, "start", refused)
            pool.submit(torch_threads.compute_alone).result()
        assert pool.submit(torch.get_num_threads).result() == later() == team
