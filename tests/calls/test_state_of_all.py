"""The state that calls share: the one that most hold, a newcomer's, and that of a policy after it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.collective_calls import Synced
from ictp2p.errors import (
    LocalProtocolError,
    MeshMismatch,
)
from tests.calls.callers import PATIENCE, Mesh, succeeded

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


def test_the_shared_state_of_all_workers_becomes_one(mesh: Mesh) -> None:
    mesh.add("a/0", "a/1", "b/0").gather(2)

    def body(name: str, peer: ictp2p.Peer) -> Any:
        state = {"w": torch.randn(300_000), "flags": torch.tensor([name == "a/1", True]), "n": torch.tensor(hash(name))}
        return state, peer.sync_state(state)

    found = succeeded(mesh.run(body))
    assert {result.version for _, result in found} == {1}
    assert sum(not result.received for _, result in found) == 1
    for state, _ in found[1:]:
        assert all(torch.equal(state[key], found[0][0][key]) for key in state)


def test_the_state_that_most_clusters_hold_wins_and_a_version_costs_no_download_where_all_agree(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0", "c/0", "c/1").gather(3)

    def body(name: str, peer: ictp2p.Peer) -> Any:
        state = {"w": torch.zeros(1000)}
        results = [peer.sync_state(state)]
        state["w"] += 1.0
        results.append(peer.sync_state(state))
        state["w"] += 1.0 if name != "a/0" else 5.0
        results.append(peer.sync_state(state))
        return state["w"], results

    found = mesh.run(body)
    succeeded(found)
    for name, (tensor, results) in found.items():
        assert torch.equal(tensor, torch.full((1000,), 2.0))
        assert [r.version for r in results] == [1, 2, 3]
        assert [r.received for r in results] == [False, False, name == "a/0"]


def test_a_newcomer_gets_the_agreed_state_while_the_others_do_something_else(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0").gather(2)
    states = {name: {"w": torch.arange(500_000.0) * (1 if name in "a/0b/0" else -1)} for name in ("a/0", "b/0", "c/0")}
    succeeded(mesh.run(lambda name, peer: peer.sync_state(states[name])))
    mesh.add("c/0")
    result = mesh["c/0"].sync_state(states["c/0"])
    assert (result.version, result.received) == (1, True)
    assert torch.equal(states["c/0"]["w"], states["a/0"]["w"])
    tensors = {name: torch.ones(3) for name in mesh.peers}
    joined = succeeded(mesh.gather(3).run(lambda name, peer: peer.all_reduce(tensors[name])))
    assert {r.clusters for r in joined} == {("a", "b", "c")}


def test_a_worker_that_joins_a_cluster_is_shown_the_state_between_its_calls(mesh: Mesh) -> None:
    mesh.add("a/0")
    held, mine = {"w": torch.full((1000,), 3.0)}, {"w": torch.zeros(1000)}
    mesh["a/0"].sync_state(held)
    mesh.add("a/1")
    tensors = {name: torch.full((2,), float(name[2])) for name in mesh.peers}
    joining = mesh["a/1"].sync_state(mine, async_op=True)
    joining_sum = mesh["a/1"].all_reduce(tensors["a/1"], op="sum", async_op=True)
    held_sum = torch.zeros(2)
    while not held_sum.any():  # alone until it has come
        mesh["a/0"].all_reduce(held_sum, op="sum")
    joining_sum.wait(PATIENCE)
    assert joining.wait(PATIENCE).received
    assert torch.equal(mine["w"], held["w"])
    assert torch.equal(held_sum, tensors["a/1"])


def test_the_agreed_state_is_served_while_the_next_one_waits_for_its_vote(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0")
    state = {"w": torch.full((300_000,), 1.0)}
    mesh["a/0"].sync_state(state)
    mesh.gather(2)
    state["w"] += 1.0
    waiting = mesh["a/0"].sync_state(state, async_op=True)  # for b, which takes part and does not come
    with pytest.raises(TimeoutError):
        waiting.wait(0.5)
    mesh.add("c/0")
    mine = {"w": torch.zeros(300_000)}
    assert mesh["c/0"].sync_state(mine) == Synced(1, True)
    assert torch.equal(mine["w"], torch.full((300_000,), 1.0))
    assert not waiting.done()


def test_another_state_than_the_mesh_shares_is_a_mismatch(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0")
    mesh["a/0"].sync_state({"w": torch.zeros(3)})
    other = {"w": torch.ones(4)}
    with pytest.raises(MeshMismatch, match=r"tensor w: float32\[4\] here, float32\[3\] there"):
        mesh["b/0"].sync_state(other)
    assert torch.equal(other["w"], torch.ones(4))


def test_calls_before_and_after_a_policy_but_not_during_it(mesh: Mesh) -> None:
    mesh.add("a/0", "a/1").gather(1)
    mine = {"a/0": 1.0, "a/1": 2.0}

    def body(name: str, peer: ictp2p.Peer) -> Any:
        peer.barrier()
        model = torch.nn.Linear(2, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with ictp2p.DiLoCo(peer, model, inner, sync_every=2) as policy:
            for _ in range(4):
                model(torch.ones(1, 2)).sum().backward()
                inner.step()
                inner.zero_grad()
            with pytest.raises(LocalProtocolError, match="a policy trains"):
                peer.barrier()
            assert policy.version == 3
        tensor = torch.tensor(mine[name])
        done = peer.all_reduce(tensor, op="sum")
        assert set(done.workers) == {peer.id for peer in mesh.peers.values()}
        return tensor.item()

    assert succeeded(mesh.run(body)) == [3.0, 3.0]
