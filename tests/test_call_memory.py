"""What a call leaves behind: no memory that would stay until the garbage collector happens to find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import ictp2p
from tests.calls.callers import Mesh, succeeded
from tests.garbage import LARGE, left

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

ELEMENTS = LARGE // 4
"""More than goes in one shot."""


def passed(name: str, peer: ictp2p.Peer) -> None:
    """A message from cluster a to cluster b."""
    tensor = torch.ones(ELEMENTS)
    peer.send(tensor, "b") if name == "a/0" else peer.recv(tensor, "a")


CALLS: dict[str, Callable[[str, ictp2p.Peer], Any]] = {
    "all_reduce": lambda _, peer: peer.all_reduce(torch.ones(ELEMENTS)),
    "all_reduce, async": lambda _, peer: peer.all_reduce(torch.ones(ELEMENTS), async_op=True).wait(),
    "all_reduce, int8": lambda _, peer: peer.all_reduce(torch.ones(ELEMENTS), codec="int8"),
    "all_reduce, a list": lambda _, peer: peer.all_reduce([torch.ones(ELEMENTS), torch.ones(7)]),
    "reduce": lambda _, peer: peer.reduce(torch.ones(ELEMENTS), "a"),
    "reduce_scatter": lambda _, peer: peer.reduce_scatter(torch.ones(ELEMENTS)),
    "all_gather": lambda _, peer: peer.all_gather(torch.ones(ELEMENTS)),
    "broadcast": lambda _, peer: peer.broadcast(torch.ones(ELEMENTS), "a"),
    "sync_state": lambda _, peer: peer.sync_state({"x": torch.ones(ELEMENTS)}),
    "barrier": lambda _, peer: peer.barrier(),
    "send and recv": passed,
}


@pytest.fixture(scope="module")
def mesh() -> Iterator[Mesh]:
    with Mesh() as mesh:
        yield mesh.add("a/0", "b/0").gather(2)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_leaves_no_memory_to_the_garbage_collector(mesh: Mesh, call: str) -> None:
    """Regression: results lay in a cycle, and every call of 100 MB took fresh memory, which was half of its time."""
    succeeded(mesh.run(CALLS[call]))  # what the first one makes stays
    assert left(lambda: succeeded(mesh.run(CALLS[call]))) == []
