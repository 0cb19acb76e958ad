"""What may be given to a call: whatever cannot be is refused by name, and the next call is none the worse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ictp2p
from ictp2p.calls.tensors import Bundle
from ictp2p.errors import (
    ConfigError,
    shown,
)
from tests.calls.callers import PATIENCE, Mesh, succeeded
from tests.collectives.running.formless import FORMLESS

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


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
        "tensors 3 is neither": lambda: peer.all_reduce(3),
        "weight '2' is not a number": lambda: peer.all_reduce(torch.ones(1), weight="2"),
        "weight None is not a number": lambda: peer.reduce(torch.ones(1), "a", weight=None),
        "weight tensor.* is not a number": lambda: peer.all_reduce(torch.ones(1), weight=torch.ones(2)),
        r"weight inf is not from 1e-18 to 1e\+18": lambda: peer.all_reduce(torch.ones(1), weight=10**400),
        r"weight 1e\+308 is not from": lambda: peer.reduce_scatter(torch.ones(1), weight=1e308),
        r"codec \['none'\] is not a name": lambda: peer.all_reduce(torch.ones(1), codec=["none"]),
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
        ({"\ud800": torch.ones(1)}, r"'\\ud800' of the shared state cannot be encoded in UTF-8"),
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


@pytest.mark.parametrize("clusters", [True, 0, -1, 1.5, "2", float("nan"), np.zeros(3), -(10**400)])
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


def test_a_codec_that_is_none_is_refused(mesh: Mesh) -> None:
    mesh.add("a/0")
    with pytest.raises(ConfigError, match=r"'zip' is not known: use none, bfloat16, float16, int8, e3m0 or auto$"):
        mesh["a/0"].all_reduce(torch.ones(3), codec="zip")


def test_a_codec_that_would_lose_what_it_leaves_out_is_refused(mesh: Mesh) -> None:
    mesh.add("a/0")
    tensor = torch.ones(3)
    for codec in ("topk", "topk2bit"):
        with pytest.raises(ConfigError, match=f"codec '{codec}' leaves out .* SparseDiLoCo"):
            mesh["a/0"].all_reduce(tensor, codec=codec)
    assert tensor.tolist() == [1.0] * 3


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
    with pytest.raises(ConfigError, match="tensors is empty"):
        peer.all_reduce([])
    with pytest.raises(ConfigError, match="cluster name 'B!'"):
        peer.broadcast(torch.ones(1), "B!")
    with pytest.raises(ConfigError, match="state is empty"):
        peer.sync_state({})
