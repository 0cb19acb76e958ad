"""Collective calls of real peers on loopback: results, errors, order, and what newcomers get."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import ictp2p
from ictp2p.calls.tensors import Bundle
from ictp2p.collective_calls import Synced
from ictp2p.errors import (
    ConfigError,
    IctError,
    LocalProtocolError,
    MeshMismatch,
    PeerClosed,
    RoundMissed,
    RoundTimeout,
    shown,
)
from tests.calls.callers import PATIENCE, TOKEN, Mesh, succeeded
from tests.collectives.running.formless import FORMLESS

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with Mesh() as mesh:
        yield mesh


def warnings_of(mesh: Mesh) -> dict[str, list[str]]:
    """The warnings of each worker from now on."""
    heard: dict[str, list[str]] = {name: [] for name in mesh.peers}

    def listen(name: str) -> None:
        mesh[name].on_event(lambda event: heard[name].append(event["text"]) if event["kind"] == "warning" else None)

    for name in mesh.peers:
        listen(name)
    return heard


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(4)


UNUSABLE = {
    **FORMLESS,
    "is expanded": torch.ones(1).expand(4),
    "inference mode": inference(),
}


@pytest.mark.parametrize("words", UNUSABLE)
def test_a_tensor_that_cannot_be_used_is_named_and_the_next_call_is_none_the_worse(mesh: Mesh, words: str) -> None:
    """Regression: it failed in the middle of the call, and the next one waited a minute for a group, and failed."""
    tensor, peer = UNUSABLE[words], mesh.add("a/0")["a/0"]
    calls: list[Any] = [
        lambda: peer.all_reduce([torch.ones(1), tensor]),
        lambda: peer.broadcast(tensor, "a"),
        lambda: peer.reduce(tensor, "a"),
        lambda: peer.recv(tensor, "b"),
        lambda: peer.sync_state({"x": tensor}),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=rf"(tensors\[\d\]|state 'x') .*{words}"):
            call()
    own = torch.ones(2)
    peer.all_reduce(own, op=ictp2p.SUM)
    assert own.tolist() == [1.0, 1.0]


KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "made outside": lambda: torch.zeros(3),
    "made inside": lambda: torch.zeros(3),
    "a parameter": lambda: torch.nn.Parameter(torch.zeros(3)),
    "a view of a parameter": lambda: torch.nn.Parameter(torch.zeros(4))[:3],
}


@pytest.mark.parametrize("kind", KINDS)
def test_results_arrive_in_the_callers_tensors_whichever_mode_the_caller_is_in(mesh: Mesh, kind: str) -> None:
    """Regression: under inference_mode, which is of a thread, a call failed when its round was committed."""
    mesh.add("a/0", "b/0").gather(2)

    def call(name: str, peer: ictp2p.Peer) -> list[list[float]]:
        made = [KINDS[kind]() for _ in range(8)] if kind == "made outside" else []
        with torch.inference_mode():
            tensors = made or [KINDS[kind]() for _ in range(8)]
            for tensor in tensors:
                tensor.detach().fill_(1.0 if name == "a/0" else 2.0)
            peer.all_reduce(tensors[:2], op=ictp2p.SUM)
            peer.all_reduce(tensors[2], op=ictp2p.SUM, async_op=True).wait()
            peer.broadcast(tensors[3], "a")
            peer.reduce(tensors[4], "b", op=ictp2p.SUM)
            peer.send(tensors[5], "b") if name == "a/0" else peer.recv(tensors[5], "a")
            peer.sync_state({"x": tensors[6], "y": tensors[7]})
            return [tensor.tolist() for tensor in tensors]

    found = mesh.run(call)
    succeeded(found)
    for name, reduced in (("a/0", 1.0), ("b/0", 3.0)):
        assert found[name][:6] == [[each] * 3 for each in (3.0, 3.0, 3.0, 1.0, reduced, 1.0)]
    assert found["a/0"][6:] == found["b/0"][6:]


@pytest.mark.parametrize("workers", [1, 2])
def test_after_an_error_that_nobody_expects_the_next_call_goes_on(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Regression: it waited until its patience was over for another group, which nobody had asked for."""
    peers = mesh.add(*[f"a/{n}" for n in range(workers)]).peers
    tensors = {name: torch.ones(2) for name in peers}

    def broken(self: Bundle, held: torch.Tensor) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Bundle, "deliver", broken)
        works = [peer.all_reduce(tensors[name], op=ictp2p.SUM, async_op=True) for name, peer in peers.items()]
        for work in works:
            with pytest.raises(ZeroDivisionError):
                work.wait()
    works = [peer.all_reduce(tensors[name], op=ictp2p.SUM, async_op=True) for name, peer in peers.items()]
    for work in works:
        work.wait(PATIENCE)
    assert {tuple(each.tolist()) for each in tensors.values()} == {(float(workers),) * 2}


def test_what_is_of_another_kind_is_named(mesh: Mesh) -> None:
    peer: Any = mesh.add("a/0")["a/0"]
    wrong: dict[str, Any] = {
        "tensors = 3 is neither": lambda: peer.all_reduce(3),
        "weight '2' is not a number": lambda: peer.all_reduce(torch.ones(1), weight="2"),
        "weight None is not a number": lambda: peer.reduce(torch.ones(1), "a", weight=None),
        "weight tensor.* is not a number": lambda: peer.all_reduce(torch.ones(1), weight=torch.ones(2)),
        r"weight inf is not from 1e-18 to 1e\+18": lambda: peer.all_reduce(torch.ones(1), weight=10**400),
        r"weight 1e\+308 is not from": lambda: peer.reduce_scatter(torch.ones(1), weight=1e308),
        r"codec \['none'\] is not one": lambda: peer.all_reduce(torch.ones(1), codec=["none"]),
        r"op array\(\[0., 0.\]\) is not 'avg' or 'sum'": lambda: peer.all_reduce(torch.ones(1), op=np.zeros(2)),
        "cluster name 3 is not valid": lambda: peer.broadcast(torch.ones(1), 3),
        r"cluster name 1000.*\.\.\. is not valid": lambda: peer.broadcast(torch.ones(1), 10**400),
        r"tag 1000.*\.\.\. takes more than 64 bits": lambda: peer.send(torch.ones(1), "b", 10**400),
    }
    for words, call in wrong.items():
        with pytest.raises(ConfigError, match=words):
            call()
    own = torch.ones(1)
    peer.all_reduce(iter([own]), weight=torch.tensor(2))
    assert own.tolist() == [1.0]


def test_a_negative_view_is_taken_for_what_it_is(mesh: Mesh) -> None:
    """Regression: one that lay as any tensor does was refused in the middle of the round."""
    mesh.add("a/0", "b/0").gather(2)

    def call(name: str, peer: ictp2p.Peer) -> list[list[float]]:
        tensors = [torch.tensor([3 + 2j]).conj().imag, torch._neg_view(torch.tensor([1.0, 4.0]))]
        peer.all_reduce(tensors, op=ictp2p.SUM)
        return [tensor.resolve_neg().tolist() for tensor in tensors]

    assert succeeded(mesh.run(call)) == [[[-4.0], [-2.0, -8.0]]] * 2


def test_what_is_only_read_may_be_expanded(mesh: Mesh) -> None:
    peer = mesh.add("a/0")["a/0"]
    (gathered,) = peer.all_gather(torch.ones(1).expand(4)).tensors.values()
    assert [part.tolist() for part in gathered] == [[1.0] * 4]


@pytest.mark.parametrize("state", [{"x": 1}, {1: torch.ones(1)}])
def test_a_state_that_is_no_tensors_by_name_is_refused(mesh: Mesh, state: Any) -> None:
    with pytest.raises(ConfigError, match="is not a tensor by name"):
        mesh.add("a/0")["a/0"].sync_state(state)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"x": torch.ones([1] * 17)}, "tensor 'x' of the shared state has 17 dimensions"),
        ({"n" * 1025: torch.ones(1)}, "1025 characters, more than 1024: 'nnn"),
        ({"\ud800": torch.ones(1)}, r"'\\ud800' of the shared state holds what is no character"),
    ],
)
def test_a_state_that_nobody_else_could_read_is_refused(mesh: Mesh, state: Any, words: str) -> None:
    """Regression: it was agreed on, and all others waited for it for an hour."""
    with pytest.raises(ConfigError, match=words):
        mesh.add("a/0")["a/0"].sync_state(state)


@pytest.mark.parametrize("state", [None, 3, "weights", [torch.ones(1)], torch.nn.Linear(1, 1)])
def test_a_state_that_is_no_mapping_is_refused_and_one_is_named(mesh: Mesh, state: Any) -> None:
    """Regression: what came of it were errors of `dict`, which say nothing of the state."""
    with pytest.raises(ConfigError, match=r"state must be a mapping of names to tensors, .*\.state_dict\(\), not a"):
        mesh.add("a/0")["a/0"].sync_state(state)


@pytest.mark.parametrize("clusters", [0, -1, 1.5, "2", float("nan"), np.zeros(3), -(10**400)])
def test_a_number_of_clusters_that_cannot_be_is_named(mesh: Mesh, clusters: Any) -> None:
    mesh.add("a/0")
    with pytest.raises(ConfigError, match=re.escape(f"clusters = {shown(clusters)} is not valid")):
        mesh.peers["a/0"].gather(clusters)


def test_a_number_of_clusters_may_be_any_whole_number(mesh: Mesh) -> None:
    mesh.add("a/0")["a/0"].gather(np.int64(1), np.float32(30.0))


@pytest.mark.parametrize("timeout", [float("inf"), 1e10, 10**400, np.float32(60.0), None])
def test_a_wait_may_be_as_long_as_anybody_likes(mesh: Mesh, timeout: Any) -> None:
    """Regression: where it was longer than the platform counts, it was an OverflowError."""
    peer = mesh.add("a/0")["a/0"]
    peer.gather(1, timeout)
    assert peer.all_reduce(torch.ones(1), async_op=True).wait(timeout).clusters == ("a",)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), "5", np.zeros(3), torch.zeros(3), -(10**400)])
def test_a_time_to_wait_that_cannot_be_is_named(mesh: Mesh, timeout: Any) -> None:
    work = mesh.add("a/0")["a/0"].all_reduce(torch.ones(1), async_op=True)
    with pytest.raises(ConfigError, match=re.escape(f"timeout = {shown(timeout)} is not valid")):
        work.wait(timeout)
    work.wait()


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), "5", np.zeros(3), torch.zeros(3), -(10**400)])
def test_a_time_to_gather_that_cannot_be_is_named(mesh: Mesh, timeout: Any) -> None:
    """Regression: no time is ever past what is no number, and such a call never ended."""
    mesh.add("a/0")
    with pytest.raises(ConfigError, match=re.escape(f"timeout = {shown(timeout)} is not valid")):
        mesh.peers["a/0"].gather(2, timeout)


# ------------------------------------------------------------ all_reduce, broadcast, barrier


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


def test_a_codec_that_is_none_is_refused(mesh: Mesh) -> None:
    mesh.add("a/0")
    with pytest.raises(ConfigError, match="codec 'zip' is not known: use none, bfloat16"):
        mesh["a/0"].all_reduce(torch.ones(3), codec="zip")


def test_a_codec_that_would_lose_what_it_leaves_out_is_refused(mesh: Mesh) -> None:
    mesh.add("a/0")
    tensor = torch.ones(3)
    for codec in ("topk", "topk2bit"):
        with pytest.raises(ConfigError, match=f"codec '{codec}' leaves out .* SparseDiLoCo"):
            mesh["a/0"].all_reduce(tensor, codec=codec)
    assert tensor.tolist() == [1.0] * 3


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


# ------------------------------------------------------------ errors


def test_what_cannot_be_reduced_is_refused_by_name_at_once(mesh: Mesh) -> None:
    peer = mesh.add("a/0")["a/0"]
    with pytest.raises(ConfigError, match="float32, float64"):
        peer.all_reduce([torch.ones(1), torch.ones(1, dtype=torch.float64)])
    with pytest.raises(ConfigError, match=r"int64 cannot be averaged.*op='sum'"):
        peer.all_reduce(torch.ones(1, dtype=torch.int64))
    with pytest.raises(ConfigError, match="bool cannot be reduced"):
        peer.all_reduce(torch.ones(1, dtype=torch.bool), op="sum")
    with pytest.raises(ConfigError, match=r"tensors\[0\] has type torch.complex64"):
        peer.all_reduce(torch.ones(1, dtype=torch.complex64))
    with pytest.raises(ConfigError, match="op 'max'"):
        peer.all_reduce(torch.ones(1), op="max")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="weight nan"):
        peer.all_reduce(torch.ones(1), weight=float("nan"))
    with pytest.raises(ConfigError, match="no tensors"):
        peer.all_reduce([])
    with pytest.raises(ConfigError, match="cluster name 'B!'"):
        peer.broadcast(torch.ones(1), "B!")
    with pytest.raises(ConfigError, match="state is empty"):
        peer.sync_state({})


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


# ------------------------------------------------------------ sync_state


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


# ------------------------------------------------------------ beside a policy


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
