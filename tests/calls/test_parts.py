"""Halves of an all-reduce over real peers: who gets what, and what a membership that changes in between does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

import ictp2p
from ictp2p.calls import parts
from ictp2p.calls.chronicle import Chronicle
from ictp2p.calls.completed import Completed
from ictp2p.calls.rounds import Barrier
from ictp2p.calls.tensors import Addend, Bundle
from ictp2p.collectives.planning.halves import cuts
from ictp2p.errors import ConfigError, RoundTimeout
from tests.calls.callers import PATIENCE, Mesh, succeeded

VALUE = {"a/0": 1.0, "a/1": 2.0, "b/0": 4.0, "c/0": 8.0}
SHAPES = [(70_001,), (3, 4), ()]


def tensors(name: str) -> list[torch.Tensor]:
    made = [(torch.arange(torch.Size(s).numel()) % 7 + VALUE[name]).float().reshape(s) for s in SHAPES]
    return [made[0], made[1].t(), made[2]]


def flat(group: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in group])


@pytest.mark.real
@pytest.mark.timeout(90)
def test_each_call_gives_everybody_its_part(mesh: Mesh) -> None:
    mesh.add(*VALUE).gather(3)

    def body(name: str, peer: ictp2p.Peer) -> Any:
        reduced, scattered, gathered = tensors(name), tensors(name), tensors(name)
        done = peer.reduce(reduced, "b", op="sum")
        part = peer.reduce_scatter(scattered, op="sum", async_op=True)
        found = peer.all_gather([gathered[0], torch.tensor([name == "a/1", name == "b/0"])], async_op=True)
        return done, reduced, part.wait(PATIENCE), scattered, found.wait(PATIENCE)

    results = mesh.run(body)
    succeeded(results)
    total = flat([sum(each) for each in zip(*map(tensors, VALUE), strict=True)])  # type: ignore[arg-type]
    ends = cuts(len(total), 3)
    for name, (done, reduced, part, scattered, found) in results.items():
        assert done.clusters == part.clusters == tuple(found.tensors) == ("a", "b", "c")
        assert torch.equal(flat(reduced), total if name == "b/0" else flat(tensors(name)))
        place = "abc".index(name[0])
        assert (part.start, part.stop) == (ends[place], ends[place + 1])
        assert torch.equal(part.part, total[part.start : part.stop])
        assert torch.equal(flat(scattered), flat(tensors(name))), "what was brought stays"
        leader = next(n for n in mesh.leaders() if n[0] == "a")
        for cluster, one in (("a", leader), ("b", "b/0"), ("c", "c/0")):
            values, flags = found.tensors[cluster]
            assert torch.equal(values, tensors(one)[0])
            assert flags.tolist() == [one == "a/1", one == "b/0"]


@pytest.mark.real
@pytest.mark.timeout(90)
def test_a_mean_weighs_contributions_and_a_lone_cluster_has_all_of_it(mesh: Mesh) -> None:
    peer = mesh.add("a/0").gather(1)["a/0"]
    tensor = torch.full((10,), 3.0)
    assert peer.reduce(tensor, "a").clusters == ("a",)
    part = peer.reduce_scatter(tensor)
    assert (part.start, part.stop, part.part.tolist()) == (0, 10, [3.0] * 10)
    assert peer.all_gather(tensor).tensors["a"][0].tolist() == [3.0] * 10
    with pytest.raises(ConfigError, match="int64 cannot be averaged"):
        peer.reduce_scatter(torch.ones(1, dtype=torch.int64))
    mesh.add("b/0").gather(2)

    def body(name: str, peer: ictp2p.Peer) -> float:
        return float(peer.reduce_scatter(torch.full((4,), VALUE[name]), weight=VALUE[name]).part[0])

    mean = (1 + 4 * 4) / 5
    assert mesh.run(body) == {"a/0": pytest.approx(mean), "b/0": pytest.approx(mean)}


class Nothing:
    """Stands where calls keep what they are made with: these are never acted on."""

    chronicle = Chronicle(ictp2p.types.PeerId("1" * 32), ictp2p.types.ClusterId("a"))


def completed(*clusters: str) -> Completed:
    return Completed(7, tuple(map(ictp2p.types.ClusterId, clusters)), 0.0, 0, 0, "star", "because")


def test_both_rounds_are_repeated_until_the_same_clusters_are_in_both() -> None:
    script = iter(["ab", "abc", "abc", "ab", "ab", "ab"])
    ran: list[str] = []

    def run(call: Any) -> Completed:
        ran.append(type(call).__name__)
        clusters = next(script)
        if isinstance(call, parts.Gather):
            call.accept(ictp2p.calls.handing.Answer(b"", encoded(clusters), torch.arange(call.nbytes).to(torch.uint8)))
        return completed(*clusters)

    bundle, nothing = Bundle(torch.zeros(2, dtype=torch.uint8)), Nothing()
    found = parts.all_gather(run, nothing, nothing, bundle, ictp2p.types.ClusterId("a"))  # type: ignore[arg-type]
    assert ran == ["Barrier", "Gather"] * 3
    assert {name: group[0].tolist() for name, group in found.tensors.items()} == {"a": [0, 1], "b": [2, 3]}


def test_a_membership_that_never_settles_ends_the_call() -> None:
    def run(call: Any) -> Completed:
        return completed("a", "b") if isinstance(call, Barrier) else completed("a")

    addend, nothing = Addend(Bundle(torch.zeros(2)), "sum"), Nothing()
    with pytest.raises(RoundTimeout, match="changed 8 times"):
        parts.reduce_scatter(run, nothing, nothing, addend, ictp2p.types.ClusterId("a"))  # type: ignore[arg-type]


def test_a_part_is_the_programs_own() -> None:
    """Regression: it was the memory that a mate is handed, which comes for it while the program writes."""
    nothing, here = Nothing(), ictp2p.types.ClusterId("a")
    scatter = parts.Scatter(nothing, nothing, Addend(Bundle(torch.zeros(4)), "sum"), (here,), here)  # type: ignore[arg-type]
    scatter.adds_up = False  # nobody asks whose tensors are in it
    answer = ictp2p.calls.handing.Answer(b"", encoded("a"), torch.full((4,), 7.0).view(torch.uint8))
    scatter.accept(answer)
    scatter.part.zero_()
    assert answer.memory.view(torch.float32).tolist() == [7.0] * 4


def encoded(clusters: str) -> bytes:
    return msgspec.msgpack.encode(completed(*clusters))
