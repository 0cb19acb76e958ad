from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ictp2p.errors import MeshMismatch
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.local_sgd import LocalSGD

Array = NDArray[np.float32]
FEATURES = 3


class Linear(torch.nn.Module):
    """Loss (w . x - y)^2 / 2: a gradient that NumPy repeats to the bit."""

    def __init__(self, start: Sequence[float] = (1.0, -2.0, 0.5)) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(start))


def rows(cluster: int, steps: int) -> Array:
    return np.random.default_rng(cluster).integers(-3, 4, (steps, FEATURES)).astype(np.float32)


def train(policy: Any, model: Linear, inner: torch.optim.Optimizer, data: Array) -> list[Array]:
    trace = []
    for row in data:
        gradient_of(model, row)
        inner.step()
        inner.zero_grad()
        trace.append(model.w.detach().numpy().copy())
    return trace


def gradient_of(model: Linear, row: Array) -> None:
    """The gradient is the row itself, plus the weights: loss = w . row + |w|^2 / 2."""
    model.w.grad = torch.from_numpy(row) + model.w.detach()


def diloco(data: Array, **options: Any) -> Callable[[Any], tuple[list[Array], Any]]:
    def body(mesh: Any) -> tuple[list[Array], Any]:
        model = Linear()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, options.pop("outer", None), **options) as policy:
            return train(policy, model, inner, data), policy

    return body


def golden(
    data: Sequence[Array], every: int, lr: float, momentum: float, weights: Sequence[float]
) -> list[list[Array]]:
    """DiLoCo in plain NumPy, float32, one rounded operation at a time."""
    f = np.float32
    start = np.array([1.0, -2.0, 0.5], f)
    base, buffer = start.copy(), np.zeros(3, f)
    local = [start.copy() for _ in data]
    traces: list[list[Array]] = [[] for _ in data]
    for step in range(len(data[0])):
        for i, part in enumerate(data):
            gradient = part[step] + local[i]
            local[i] = local[i] - f(0.125) * gradient
        if (step + 1) % every == 0:
            delta = sum(f(w) * (base - theta) for w, theta in zip(weights, local, strict=True)) / f(sum(weights))
            buffer = buffer * f(momentum) + delta
            move = buffer * f(momentum) + delta if momentum else delta
            base = base - move * f(lr)
            local = [base.copy() for _ in data]
        for i in range(len(data)):
            traces[i].append(local[i].copy())
    return traces


def same(one: Sequence[Array], other: Sequence[Array]) -> None:
    for step, (a, b) in enumerate(zip(one, other, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"after inner step {step + 1}")


def test_two_clusters_follow_the_golden_trace_to_the_bit(make_world: Any) -> None:
    data = [rows(i, 12) for i in range(2)]
    found = make_world(a=1, b=1).run(a_0=diloco(data[0], sync_every=4), b_0=diloco(data[1], sync_every=4))
    expected = golden(data, 4, 0.7, 0.9, [4.0, 4.0])
    same(found["a_0"][0], expected[0])
    same(found["b_0"][0], expected[1])
    assert found["a_0"][1].state.digest == found["b_0"][1].state.digest


def test_the_first_sync_comes_after_exactly_h_inner_steps(make_world: Any) -> None:
    data = [rows(i, 5) for i in range(2)]
    found = make_world(a=1, b=1).run(a_0=diloco(data[0], sync_every=4), b_0=diloco(data[1], sync_every=4))
    one, other = found["a_0"][0], found["b_0"][0]
    equal = [np.array_equal(x, y) for x, y in zip(one, other, strict=True)]
    assert equal == [False, False, False, True, False]


def test_the_average_is_weighted_by_what_was_contributed(make_world: Any) -> None:
    data = [rows(i, 4) for i in range(2)]

    def heavy(mesh: Any) -> list[Array]:
        model = Linear()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, sync_every=4) as policy:
            policy.weight = 3.0
            return train(policy, model, inner, data[0])

    found = make_world(a=1, b=1).run(a_0=heavy, b_0=diloco(data[1], sync_every=4))
    same(found["a_0"], golden(data, 4, 0.7, 0.9, [12.0, 4.0])[0])


def test_outer_sgd_without_momentum_is_local_sgd(make_world: Any) -> None:
    data = [rows(i, 8) for i in range(2)]

    def outer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1.0, momentum=0.0)

    def local(part: Array) -> Callable[[Any], list[Array]]:
        def body(mesh: Any) -> list[Array]:
            model = Linear()
            inner = torch.optim.SGD(model.parameters(), lr=0.125)
            with LocalSGD(mesh, model, inner, sync_every=4) as policy:
                return train(policy, model, inner, part)

        return body

    one = make_world(a=1, b=1).run(
        a_0=diloco(data[0], sync_every=4, outer=outer), b_0=diloco(data[1], sync_every=4, outer=outer)
    )
    other = make_world(a=1, b=1).run(a_0=local(data[0]), b_0=local(data[1]))
    same(one["a_0"][0], other["a_0"])
    same(one["a_0"][0], golden(data, 4, 1.0, 0.0, [4.0, 4.0])[0])


def test_two_levels_with_one_worker_each_are_one_level(make_world: Any) -> None:
    """Against torch's own optimizers over replicas in one process, without clusters, groups or rounds."""
    data = [rows(i, 9) for i in range(3)]

    def body(part: Array) -> Callable[[Any], Array]:
        def run(mesh: Any) -> Array:
            model = Linear()
            inner = torch.optim.AdamW(model.parameters(), lr=0.0625)
            with DiLoCo(mesh, model, inner, sync_every=3):
                return train(None, model, inner, part)[-1]

        return run

    models = [Linear() for _ in data]
    inners = [torch.optim.AdamW(model.parameters(), lr=0.0625) for model in models]
    agreed = torch.nn.Parameter(models[0].w.detach().clone())
    outer = torch.optim.SGD([agreed], lr=0.7, momentum=0.9, nesterov=True)
    for start in range(0, 9, 3):
        for model, inner, part in zip(models, inners, data, strict=True):
            train(None, model, inner, part[start : start + 3])
        agreed.grad = torch.stack([agreed.detach() - model.w.detach() for model in models]).mean(0)
        outer.step()
        for model in models:
            model.w.detach().copy_(agreed)
    found = make_world(a=1, b=1, c=1).run(a_0=body(data[0]), b_0=body(data[1]), c_0=body(data[2]))
    for last in found.values():
        np.testing.assert_allclose(last, agreed.detach().numpy(), rtol=1e-6, atol=1e-6)


def test_the_pseudo_gradient_descends(make_world: Any) -> None:
    """Old minus local: with outer lr 1 a lone cluster ends where its inner steps took it, not on the other side."""
    data = rows(0, 4)
    found = make_world(a=1).run(a_0=diloco(data, sync_every=4, outer=lambda p: torch.optim.SGD(p, lr=1.0)))
    inner = golden([data], 99, 1.0, 0.0, [1.0])[0]
    np.testing.assert_allclose(found["a_0"][0][-1], inner[-1], rtol=1e-6)


def test_the_outer_momentum_survives_a_join(make_world: Any) -> None:
    """A cluster that joins after two rounds takes the momentum over: its next outer step is everybody's."""
    world, data = make_world(a=1), [rows(i, 12) for i in range(2)]
    ready, enough = threading.Event(), threading.Event()

    def old(mesh: Any) -> Any:
        model = Linear()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, sync_every=4) as policy:
            train(policy, model, inner, data[0][:8])
            world.clusters["b"] = type(world.clusters["a"])(1)
            ready.set()
            assert enough.wait(20)
            return train(policy, model, inner, data[0][8:]), policy

    def new(mesh: Any) -> Any:
        model = Linear((9.0, 9.0, 9.0))
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, sync_every=4) as policy:
            enough.set()
            return train(policy, model, inner, data[1][8:]), policy

    first = world.start("a_0", old)
    assert ready.wait(20)
    world.start("b_0", new).join(30)
    first.join(30)
    assert not world.errors, world.errors
    (one, policy), (other, joined) = world.results["a_0"], world.results["b_0"]
    assert joined.state.digest == policy.state.digest
    before = golden([data[0][:8]], 4, 0.7, 0.9, [4.0])[0][-1]
    assert not np.array_equal(one[-1], before)
    np.testing.assert_array_equal(one[-1], other[-1])
    name = "outer momentum_buffer of w"
    assert torch.equal(policy.state.committed[name], joined.state.committed[name])
    assert policy.state.committed[name].abs().sum() > 0


def test_different_initial_weights_are_noticed_and_replaced(make_world: Any) -> None:
    def body(start: tuple[float, ...]) -> Callable[[Any], Array]:
        def run(mesh: Any) -> Array:
            model = Linear(start)
            inner = torch.optim.SGD(model.parameters(), lr=0.125)
            with DiLoCo(mesh, model, inner, sync_every=4):
                return model.w.detach().numpy().copy()

        return run

    found = make_world(a=1, b=2).run(a_0=body((1.0, 2.0, 3.0)), b_0=body((4.0, 5.0, 6.0)), b_1=body((7.0, 8.0, 9.0)))
    assert len({tuple(w) for w in found.values()}) == 1


def test_the_inner_optimizer_stays_local(make_world: Any) -> None:
    data = [rows(i, 4) for i in range(2)]

    def body(part: Array) -> Callable[[Any], torch.Tensor]:
        def run(mesh: Any) -> torch.Tensor:
            model = Linear()
            inner = torch.optim.AdamW(model.parameters(), lr=0.125)
            with DiLoCo(mesh, model, inner, sync_every=4) as policy:
                train(policy, model, inner, part)
                assert not [e.name for e in policy.state.entries if "exp_avg" in e.name]
                moment: torch.Tensor = inner.state[model.w]["exp_avg"]
                return moment.clone()

        return run

    found = make_world(a=1, b=1).run(a_0=body(data[0]), b_0=body(data[1]))
    assert not torch.equal(found["a_0"], found["b_0"])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sync_every": 5}, "sync_every: 5 here, 4 there"),
        ({"sync_every": 4, "outer": lambda p: torch.optim.SGD(p, lr=0.5)}, "outer lr, group 0: 0.5 here, 0.7 there"),
        ({"sync_every": 4, "codec": "bfloat16"}, "codec: bfloat16 here, none there"),
    ],
)
def test_another_setup_is_refused_by_name(make_world: Any, options: dict[str, Any], named: str) -> None:
    world = make_world(a=1)
    world.run(a_0=diloco(rows(0, 0), sync_every=4))
    world.clusters["b"] = type(world.clusters["a"])(1)
    with pytest.raises(MeshMismatch, match=named):
        world.run(b_0=diloco(rows(1, 0), **options))
