"""What calls give: sums of all types, copies bit by bit, the same everywhere, in the order of the calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ictp2p
from tests.calls.callers import PATIENCE, Mesh, succeeded

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


def test_a_weighted_mean_of_several_tensors_over_all_workers(mesh: Mesh) -> None:
    mesh.add("a/0", "a/1", "b/0", "b/1").gather(2)
    value = {"a/0": 1.0, "a/1": 2.0, "b/0": 4.0, "b/1": 8.0}
    weight = {"a/0": 1.0, "a/1": 1.0, "b/0": 2.0, "b/1": 4.0}
    mean = sum(value[n] * weight[n] for n in value) / sum(weight.values())

    def body(name: str, peer: ictp2p.Peer) -> Any:
        strided = torch.full((3, 4), value[name]).t()
        tensors = [torch.full((70_001,), value[name]), strided, torch.tensor(value[name]), torch.empty(0)]
        result = peer.all_reduce(tensors, weight=weight[name])
        return tensors, result

    for tensors, result in succeeded(mesh.run(body)):
        assert result.clusters == ("a", "b")
        for tensor in tensors:
            torch.testing.assert_close(tensor, torch.full_like(tensor, mean))


TYPES = [torch.int64, torch.int16, torch.uint8, torch.bfloat16, torch.float16, torch.float64]


def test_a_sum_of_any_type(mesh: Mesh) -> None:
    mesh.add("a/0", "a/1", "b/0").gather(2)
    added = {"a/0": 1, "a/1": 2, "b/0": 3}

    def body(name: str, peer: ictp2p.Peer) -> Any:
        tensors = [torch.arange(1000).remainder(40).to(dtype) + added[name] for dtype in TYPES]
        for tensor in tensors:
            peer.all_reduce(tensor, op=ictp2p.SUM)
        return tensors

    for tensors in succeeded(mesh.run(body)):
        for dtype, tensor in zip(TYPES, tensors, strict=True):
            assert torch.equal(tensor, (torch.arange(1000).remainder(40) * 3 + 6).to(dtype))


LOST = {"int8": 0.02, "bfloat16": 0.006, "e3m0": 0.3, "auto": 0.02}
"""By codec, the most of a sum that may be lost."""


def test_a_sum_of_encoded_elements_is_the_same_everywhere(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0", "c/0").gather(3)
    value = {"a/0": 1.0, "b/0": -2.0, "c/0": 3.0}

    def brought(name: str) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(ord(name[0]))
        return [torch.randn(50_001, generator=generator), torch.full((3,), value[name])]

    def body(name: str, peer: ictp2p.Peer) -> Any:
        found = {codec: brought(name) for codec in LOST}
        took = {codec: peer.all_reduce(tensors, op=ictp2p.SUM, codec=codec) for codec, tensors in found.items()}
        return found, took

    results = succeeded(mesh.run(body))
    whole = torch.stack([brought(name)[0] for name in value]).sum(0)
    for codec, lost in LOST.items():
        first = results[0][0][codec]
        for found, took in results:
            assert all(torch.equal(*pair) for pair in zip(found[codec], first, strict=True))
            assert took[codec].clusters == ("a", "b", "c")
        assert (first[0] - whole).norm() / whole.norm() < lost


def test_everybody_gets_the_same_bits(mesh: Mesh) -> None:
    mesh.add("a/0", "a/1", "b/0", "c/0").gather(3)

    def body(name: str, peer: ictp2p.Peer) -> Any:
        tensor = torch.randn(50_000, generator=torch.Generator().manual_seed(ord(name[0]) + int(name[2])))
        peer.all_reduce(tensor)
        return tensor

    first, *others = succeeded(mesh.run(body))
    assert all(torch.equal(first, other) for other in others)


def test_a_broadcast_copies_tensors_of_any_types_bit_by_bit(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0", "b/1", "c/0").gather(3)
    nan = torch.tensor([float("nan"), -0.0])

    def body(name: str, peer: ictp2p.Peer) -> Any:
        mine = name.startswith("b")
        flags, numbers = torch.full((3,), mine), nan.clone() if mine else torch.ones(2)
        wide = torch.full((2, 2), 7 if mine else 0)
        result = peer.broadcast([flags, numbers, wide], "b")
        return flags, numbers, wide, result

    for flags, numbers, wide, result in succeeded(mesh.run(body)):
        assert result.clusters == ("a", "b", "c")
        assert flags.all()
        assert torch.equal(wide, torch.full((2, 2), 7))
        assert torch.equal(numbers.view(torch.int32), nan.view(torch.int32))


def test_a_barrier_holds_everybody_until_the_last_has_come(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0", "b/1").gather(2)
    early = {name: mesh[name].barrier(async_op=True) for name in ("a/0", "b/0")}
    with pytest.raises(TimeoutError, match="barrier is still under way"):
        early["a/0"].wait(1.0)
    assert not any(work.done() for work in early.values())
    assert early["a/0"].exception() is None
    mesh["b/1"].barrier()
    assert {work.wait(PATIENCE).clusters for work in early.values()} == {("a", "b")}
    assert all(work.done() and work.exception() is None for work in early.values())


def test_calls_of_one_peer_run_in_the_order_in_which_they_were_made(mesh: Mesh) -> None:
    mesh.add("a/0", "a/1", "b/0").gather(2)

    def body(name: str, peer: ictp2p.Peer) -> Any:
        tensors = [torch.full((4,), float(n)) for n in range(6)]
        works: list[ictp2p.Work[Any]] = []
        for tensor in tensors:
            works.append(peer.all_reduce(tensor, op="sum", async_op=True))
            if len(works) == 3:
                works.append(peer.barrier(async_op=True))
        rounds = [work.wait(PATIENCE).round for work in works]
        return rounds, tensors

    for rounds, tensors in succeeded(mesh.run(body)):
        assert rounds == list(range(rounds[0], rounds[0] + 7))
        assert [t[0].item() for t in tensors] == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
