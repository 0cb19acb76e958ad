"""Clusters whose every worker has weight 0: they have the result of each round, and nothing depends on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ictp2p.sync.pace import AdaptivePace
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.policies.noloco import NoLoCo
from ictp2p.sync.policies.sparse import SparseDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from tests.sync.diloco_trace import Model, rows

EVERY, STEPS = 2, 9
STREAMING = partial(StreamingDiLoCo, fragments=1, overlap=1, mix=0.25)
SPARSE = partial(SparseDiLoCo, chunk=3, keep=1, codec="none")
ALL = {"local": LocalSGD, "diloco": DiLoCo, "streaming": STREAMING, "sparse": SPARSE, "eager": EagerDiLoCo}


def worker(policy: Any, seed: int, weights: Callable[[int], float]) -> Callable[[Any], Any]:
    """Trains, and gives the digest of each version; gradients of steps without weight are nonsense."""

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        digests = {}
        with policy(mesh, model, inner, sync_every=EVERY) as kept:
            for step, row in enumerate(rows(seed, STEPS)):
                kept.weight = weights(step)
                model.w.grad = torch.from_numpy(row) + model.w.detach()
                if not kept.weight:
                    model.w.grad.fill_(float("nan"))
                inner.step()
                digests[kept.version] = kept.digest()
            return digests, model.w.detach().numpy().copy(), kept

    return body


@pytest.mark.parametrize("policy", ALL)
@given(
    weights=st.lists(st.sampled_from([0.0, 1.0, 0.5, 3.0]), min_size=2, max_size=4).filter(any),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
def test_it_is_as_if_they_were_not_there_but_that_they_have_the_result(
    make_world: Any, policy: str, weights: list[float]
) -> None:
    names = "abcd"[: len(weights)]
    bodies = {f"{n}_0": worker(ALL[policy], ord(n), lambda _, w=w: w) for n, w in zip(names, weights, strict=True)}
    train = {n: w for n, w in zip(names, weights, strict=True) if w}
    found = make_world(**dict.fromkeys(names, 1)).run(**bodies)
    wanted = make_world(**dict.fromkeys(train, 1)).run(**{f"{n}_0": bodies[f"{n}_0"] for n in train})
    for name, (digests, model, _) in found.items():
        assert digests == wanted[f"{min(train)}_0"][0]
        if name in wanted:
            np.testing.assert_array_equal(model, wanted[name][1])


@pytest.mark.parametrize("policy", [LocalSGD, DiLoCo, SPARSE, NoLoCo])
def test_a_mesh_of_nobody_else_goes_on_and_changes_nothing(make_world: Any, policy: Any) -> None:
    found = make_world(a=1, b=1).run(a_0=worker(policy, 0, lambda step: 0.0), b_0=worker(policy, 1, lambda step: 0.0))
    assert found["a_0"][0] == found["b_0"][0]
    for _, model, kept in found.values():
        np.testing.assert_array_equal(model, Model().w.detach().numpy())
        np.testing.assert_array_equal(kept.global_parameters()["w"].numpy(), model)
        assert kept.version == 1 + STEPS // EVERY


def test_what_a_cluster_kept_back_is_not_lost_while_it_looks_on(make_world: Any) -> None:
    """Alone, with all that is left out coming back in full: agreed and kept back make up what was trained."""

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        data, kept_back = rows(2, 8), []
        with SparseDiLoCo(mesh, model, inner, sync_every=EVERY, chunk=3, keep=1, decay=1.0, codec="none") as policy:
            for step, row in enumerate(data):
                policy.weight = float(step // EVERY in (0, 3))
                model.w.grad = torch.from_numpy(row)
                inner.step()
                kept_back.append(policy._weights.residuals[0].numpy().copy())
            return data, kept_back, policy.global_parameters()["w"].numpy()

    data, kept_back, agreed = make_world(a=1).run(a_0=body)["a_0"]
    assert kept_back[1].any()
    for after in kept_back[2:6]:
        np.testing.assert_array_equal(after, kept_back[1])
    trained = Model().w.detach().numpy() - np.float32(0.125) * (data[:2].sum(0) + data[6:].sum(0))
    np.testing.assert_allclose(agreed - kept_back[-1], trained, rtol=1e-6)


def test_their_steps_are_no_measure_of_those_who_train(make_world: Any) -> None:
    """Whoever computes nothing is fast, and has nobody take fewer steps for it."""

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        trains = mesh.cluster == "a"
        with DiLoCo(mesh, model, inner, sync_every=AdaptivePace(4, least=4, most=4)) as policy:
            policy.weight = float(trains)
            lengths, since = [], 0
            for row in rows(0, 16):
                version, since = policy.version, since + 1
                clocks[mesh.name] += 1.0 if trains else 0.001
                model.w.grad = torch.from_numpy(row)
                inner.step()
                if policy.version > version:
                    lengths.append(since)
                    since = 0
            return lengths

    clocks = {"a/0": 0.0, "b/0": 0.0}
    world = make_world(a=1, b=1)
    world.clock = lambda name: clocks[name]
    assert world.run(a_0=body, b_0=body) == {"a_0": [4] * 4, "b_0": [4] * 4}
