"""A process that was forked from a rank (a data loader's worker, say) is told so, whatever it calls: nothing hangs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ictp2p.torch_backend import GroupClosed, Options, ProcessGroup
from ictp2p.torch_backend.endpoint import LOOP
from tests.torch_backend.conftest import together

PATIENCE = 10
"""Seconds after which the kernel ends a child that hangs."""


def in_a_fork(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """What each call came to in a child of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        said = {}
        for name, call in calls.items():
            try:
                said[name] = f"returned {call()}"
            except GroupClosed as error:
                said[name] = str(error)
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_every_call_in_a_forked_process_is_refused_by_name() -> None:
    def act(group: ProcessGroup, rank: int) -> dict[str, str]:
        mine, under_way = torch.ones(3), group.recv([torch.ones(3)], 1 - rank, 7)
        said = {}
        if rank == 0:
            said = in_a_fork(
                {
                    "all_reduce": lambda: group.allreduce([mine]).wait(),
                    "send": lambda: group.send([mine], 1, 0).wait(),
                    "barrier": lambda: group.barrier(dist.distributed_c10d.BarrierOptions()).wait(),
                    "what was under way": under_way.wait,
                    "the end": group.shutdown,
                }
            )
        group.send([mine], 1 - rank, 7).wait()
        under_way.wait()
        group.allreduce([mine]).wait()
        assert mine.tolist() == [2.0] * 3, "the parent's group is none the worse"
        return said

    said = together(2, act)[0]
    assert isinstance(said, dict), said
    assert said.pop("the end") == "returned None"
    assert len(said) == 4, "the child hung"
    assert all(f"process {os.getpid()}" in text for text in said.values()), said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_waits_for_no_lock_of_a_thread_that_stayed_behind_and_may_form_groups_of_its_own() -> None:
    def form() -> list[float]:
        group = ProcessGroup(dist.HashStore(), 0, 1, timedelta(seconds=PATIENCE), Options(host="127.0.0.1"))
        mine = torch.ones(2)
        group.allreduce([mine]).wait()
        group.shutdown()
        return mine.tolist()

    def act(group: ProcessGroup, rank: int) -> dict[str, str]:
        done = group.allreduce([torch.ones(3)])
        done.wait()
        if rank:
            return {}
        with group._calls._lock, LOOP._lock, done._lock:
            return in_a_fork(
                {
                    "what is done": done.wait,
                    "its future": done.get_future,
                    "a group of its own": form,
                    "the end": group.shutdown,
                    "the end of what failed to form": lambda: LOOP.enter() and LOOP.leave(),
                }
            )

    said = together(2, act)[0]
    assert isinstance(said, dict), said
    assert said.pop("its future").startswith(f"all_reduce of group without a name began in process {os.getpid()}")
    assert said == {
        "what is done": "returned True",
        "a group of its own": "returned [1.0, 1.0]",
        "the end": "returned None",
        "the end of what failed to form": "returned None",
    }
