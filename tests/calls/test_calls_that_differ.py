"""Calls that do not fit those of the others, or come without them, end with an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.errors import (
    IctError,
    MeshMismatch,
    PeerClosed,
    RoundMissed,
    RoundTimeout,
)
from tests.calls.callers import PATIENCE, TOKEN, Mesh, succeeded

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


def warnings_of(mesh: Mesh) -> dict[str, list[str]]:
    """The warnings of each worker from now on."""
    heard: dict[str, list[str]] = {name: [] for name in mesh.peers}

    def listen(name: str) -> None:
        mesh[name].on_event(lambda event: heard[name].append(event["text"]) if event["kind"] == "warning" else None)

    for name in mesh.peers:
        listen(name)
    return heard


def test_other_tensors_than_the_others_bring_are_a_mismatch_and_stay_untouched(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0", "c/0", "c/1").gather(3)

    def body(name: str, peer: ictp2p.Peer) -> Any:
        tensor = torch.full((3 if name == "a/0" else 4,), ord(name[0]))
        peer.all_reduce(tensor, op="sum")
        return tensor

    heard = warnings_of(mesh)
    found = mesh.run(body)
    assert isinstance(found["a/0"], MeshMismatch)
    theirs = "elements 4, tensors int64[4], as brought by b, c"
    assert str(found["a/0"]) == f"cluster a brings elements 3, tensors int64[3]; the round is for {theirs}"
    for name in ("b/0", "c/0", "c/1"):
        (text,) = heard[name]
        assert text.endswith(f" goes on with b, c only: {found['a/0']}")
    assert all(torch.equal(found[n], torch.full((4,), ord("b") + 2 * ord("c"))) for n in ("b/0", "c/0", "c/1"))


OTHERS: dict[str, Callable[[ictp2p.Peer], Any]] = {
    "elements 4": lambda peer: peer.all_reduce(torch.ones(4)),
    "tensors float32[3, 1]": lambda peer: peer.all_reduce(torch.ones(3, 1)),
    "dtype float64": lambda peer: peer.all_reduce(torch.ones(3, dtype=torch.float64)),
    "op sum": lambda peer: peer.all_reduce(torch.ones(3), op="sum"),
    "codec int8": lambda peer: peer.all_reduce(torch.ones(3), codec="int8"),
    "tensors float32[3], float32[1]": lambda peer: peer.all_reduce([torch.ones(3), torch.ones(1)]),
    "barrier": lambda peer: peer.barrier(),
}
"""By what is said of it, what does not fit an `all_reduce` of three ones."""


@pytest.mark.parametrize("words", OTHERS)
def test_of_two_clusters_that_do_not_fit_each_other_none_goes_on_alone_unwarned(mesh: Mesh, words: str) -> None:
    """Regression: one was refused by name, the other had its own tensors for everybody's mean, and no word of it."""
    mesh.add("a/0", "b/0").gather(2)
    heard = warnings_of(mesh)
    calls = {"a/0": lambda peer: peer.all_reduce(torch.ones(3)), "b/0": OTHERS[words]}
    found = mesh.run(lambda name, peer: calls[name](peer))
    ((alone, done),) = ((name, result) for name, result in found.items() if not isinstance(result, IctError))
    (refused,) = (name for name in found if name != alone)
    assert done.clusters == (alone[0],)
    assert isinstance(found[refused], MeshMismatch | RoundMissed)
    (text,) = heard[alone]
    assert f"goes on with {alone[0]} only: cluster {refused[0]} " in text
    assert words in text
    assert text.endswith(f"as brought by {alone[0]}")
    assert not heard[refused]


def test_workers_of_a_cluster_that_call_different_things_are_told(mesh: Mesh) -> None:
    mesh.add("a/0", "a/1").gather(1)
    tensors = {"a/0": torch.ones(2), "a/1": torch.ones(3)}
    found = mesh.run(lambda name, peer: peer.all_reduce(tensors[name]))
    for error in found.values():
        assert isinstance(error, MeshMismatch)
        assert "all_reduce of float32[2], op avg" in str(error)
    assert all(torch.equal(t, torch.ones_like(t)) for t in tensors.values())


def out_of_sight(peer: ictp2p.Peer) -> None:
    """Have the others not wait for this cluster's next calls."""
    peer._engine.mesh.evict()  # type: ignore[union-attr]
    peer._engine.mesh._said.trains(False)  # type: ignore[union-attr]


def wait_until_unwaited(peer: ictp2p.Peer, clusters: int) -> None:
    engine: Any = peer._engine
    for _ in range(1000):
        if len(engine.peer.taking_part()) == clusters:
            return
        engine.chronicle.wait(0.02)
    raise AssertionError("the others still wait for it")


def test_a_round_that_went_on_without_us_is_an_error_and_the_next_call_succeeds(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0", "c/0", "c/1").gather(3)
    succeeded(mesh.run(lambda name, peer: peer.barrier()))
    for name in ("c/0", "c/1"):
        out_of_sight(mesh[name])
    for name in ("a/0", "b/0"):
        wait_until_unwaited(mesh[name], 2)
    first = succeeded(mesh.run(lambda name, peer: peer.all_reduce(torch.ones(5)), "a/0", "b/0"))
    assert {result.clusters for result in first} == {("a", "b")}

    tensors = {name: torch.full((5,), 7.0) for name in mesh.peers}
    late = mesh.run(lambda name, peer: peer.all_reduce(tensors[name], op="sum"), "c/0", "c/1")
    assert all(isinstance(error, RoundMissed) for error in late.values())
    assert all(torch.equal(tensors[name], torch.full((5,), 7.0)) for name in late)

    for name in ("c/0", "c/1"):
        mesh[name]._engine.mesh.take_part()  # type: ignore[union-attr]
    mesh.gather(3)
    succeeded(mesh.run(lambda name, peer: peer.all_reduce(tensors[name], op="sum")))
    assert all(torch.equal(tensor, torch.full((5,), 28.0)) for tensor in tensors.values())


def test_a_call_that_cannot_be_decided_ends_with_what_it_waited_for(mesh: Mesh) -> None:
    tensor = torch.ones(2)
    with ictp2p.Peer(ictp2p.Config.local(cluster="a", token=TOKEN)) as peer:
        engine: Any = peer._engine
        assert peer.all_reduce(tensor).clusters == ("a",)
        ample, engine.patience = engine.patience, 1.0
        with pytest.raises(RoundTimeout, match=r"within 1 s.*cluster 'b'.*takes no part"):
            peer.broadcast(tensor, "b")
        with pytest.raises(RoundTimeout, match=r"1 of 2 clusters take part after 0\.2 s: a"):
            peer.gather(2, timeout=0.2)
        engine.patience = ample
        assert peer.all_reduce(tensor).clusters == ("a",)


def test_closing_fails_what_runs_and_what_waits(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0").gather(2)
    peer = mesh["a/0"]
    works = [peer.barrier(async_op=True), peer.all_reduce(torch.ones(1), async_op=True)]
    peer.close()
    for work in works:
        with pytest.raises(PeerClosed):
            work.wait(PATIENCE)
    with pytest.raises(PeerClosed):
        peer.barrier()


def test_a_peer_that_was_not_started_says_so() -> None:
    peer = ictp2p.Peer(ictp2p.Config.local(cluster="a", token=TOKEN))
    with pytest.raises(PeerClosed, match="not running"):
        peer.all_reduce(torch.ones(1))
