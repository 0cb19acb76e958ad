"""What a call leaves behind: no memory that would stay until the garbage collector happens to find it."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.errors import MeshMismatch
from tests.calls.callers import PATIENCE, Mesh, succeeded
from tests.garbage import LARGE, uncollected

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
    with uncollected() as left:
        succeeded(mesh.run(CALLS[call]))
    assert left == []


def test_a_call_that_is_over_lets_go_of_its_tensors(mesh: Mesh) -> None:
    """Regression: the queue held on to its last call, and so to a model's worth of tensors, until the next one."""
    gone = {name: threading.Event() for name in mesh.peers}

    def call(name: str, peer: ictp2p.Peer) -> None:
        tensor = torch.ones(ELEMENTS)
        weakref.finalize(tensor, gone[name].set)
        peer.all_reduce(tensor)

    gc.disable()
    try:
        succeeded(mesh.run(call))
        assert all(each.wait(PATIENCE) for each in gone.values())
    finally:
        gc.enable()


def test_an_error_that_is_dropped_keeps_nothing_of_its_caller() -> None:
    """Regression: it lay in a cycle with the future that it came from, and kept every frame on its way."""
    gone = threading.Event()

    def odd(name: str, peer: ictp2p.Peer) -> None:
        """The others reduce something else. What else the caller of that holds is no business of the error."""
        beside = torch.ones(ELEMENTS)
        if name != "c/0":
            peer.all_reduce(torch.ones(ELEMENTS))
            return
        weakref.finalize(beside, gone.set)
        with contextlib.suppress(MeshMismatch):
            peer.all_reduce(torch.ones(1))

    with Mesh() as mesh:
        mesh.add("a/0", "b/0", "c/0").gather(3)
        gc.disable()
        try:
            succeeded(mesh.run(odd))
            assert gone.wait(PATIENCE)
        finally:
            gc.enable()


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_peer_that_is_closed_keeps_no_result(isolation: str) -> None:
    """Regression: a program that evaluates after its `with` had the result of its last call in memory to its end."""
    config = ictp2p.Config.local(cluster="a", token="a token for tests only", isolation=isolation)
    size = 4 * (ELEMENTS + 13)  # that of nothing else in this process
    with ictp2p.Peer(config) as peer:
        peer.all_reduce(torch.ones(size // 4))
        assert _tensors_of(size), "of whoever is behind"
    assert _tensors_of(size) == 0
    assert peer.state == "EXIT"


def _tensors_of(size: int) -> int:
    gc.collect()
    return sum(type(each) is torch.Tensor and each.nbytes == size for each in gc.get_objects())
