"""A loss scaler beside a policy: workers of one cluster take the same steps, whatever their scales are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ictp2p.sync.policies.diloco import DiLoCo
from tests.sync.diloco_trace import START, Array, Model, rows
from tests.sync.fake_group import Exchange
from tests.sync.two_level.test_shards import Rank

STEPS, OVERFLOWS = 9, 5
Body = Callable[[Any], Array]


def scaled(data: Array, *, fused: bool, scale: float, overflows: bool = False, unscales: bool = False) -> Body:
    """Train with a scaler, whose gradients may overflow in one step."""

    def run(mesh: Any) -> Array:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        with DiLoCo(mesh, model, inner, None, 4):
            for number, row in enumerate(data):
                loss = (model.w * torch.from_numpy(row)).sum()
                scaler.scale(loss * (float("inf") if overflows and number == OVERFLOWS else 1.0)).backward()
                if unscales:
                    scaler.unscale_(inner)
                scaler.step(inner)
                scaler.update()
                inner.zero_grad()
            return model.w.detach().numpy().copy()

    return run


def plain(data: Array) -> Body:
    """Train without one."""

    def run(mesh: Any) -> Array:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, 4):
            for row in data:
                model.w.grad = torch.from_numpy(row).clone()
                inner.step()
            return model.w.detach().numpy().copy()

    return run


def test_a_step_without_a_gradient_is_none_of_a_scalers_business(make_world: Any) -> None:
    """Regression: where nobody had any weight there were no gradients to look at, and the step raised."""

    def run(mesh: Any) -> Array:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125, fused=True)
        scaler = torch.amp.GradScaler("cpu")
        with DiLoCo(mesh, model, inner, None, 4) as policy:
            policy.weight = 0.0
            before = model.w.detach().numpy().copy()
            scaler.scale(model.w.sum()).backward()
            scaler.step(inner)
            return model.w.detach().numpy() - before

    np.testing.assert_array_equal(make_world(a=1).run(a_0=run)["a_0"], 0.0)


def data() -> list[Array]:
    return [rows(worker, STEPS) for worker in range(2)]


@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_scales_that_differ_do_not_mix(make_world: Any, fused: bool, unscales: bool) -> None:
    one, other = data()
    wanted = make_world(a=2).run(a_0=plain(one), a_1=plain(other))["a_0"]
    found = make_world(a=2).run(
        a_0=scaled(one, fused=fused, scale=1024.0, unscales=unscales),
        a_1=scaled(other, fused=fused, scale=2.0, unscales=unscales),
    )
    np.testing.assert_array_equal(found["a_0"], wanted)
    np.testing.assert_array_equal(found["a_1"], wanted)


@pytest.mark.parametrize("unscales", [False, True])
def test_a_step_in_which_one_worker_overflows_is_skipped_by_all(make_world: Any, unscales: bool) -> None:
    """Regression: with a fused optimizer the others took the infinity in."""
    one, other = data()
    found = make_world(a=2).run(
        a_0=scaled(one, fused=True, scale=1024.0, unscales=unscales),
        a_1=scaled(other, fused=True, scale=1024.0, unscales=unscales, overflows=True),
    )
    one[OVERFLOWS] = other[OVERFLOWS] = 0.0
    wanted = make_world(a=2).run(a_0=plain(one), a_1=plain(other))["a_0"]
    np.testing.assert_array_equal(found["a_0"], wanted)
    np.testing.assert_array_equal(found["a_1"], wanted)


@pytest.mark.parametrize("overflowed", [False, True])
def test_of_a_sharded_model_no_shard_is_stepped_if_one_overflowed(make_world: Any, overflowed: bool) -> None:
    """Regression: each looked at its own part again, and all but those that had overflowed took a step of their own."""

    def run(mesh: Any) -> Array:
        model = Model()
        inner: Any = torch.optim.SGD(model.parameters(), lr=0.125, fused=True)
        with DiLoCo(mesh, model, inner, None, 4, within=Rank(Exchange(1), 0)):
            model.w.grad = torch.ones(3)
            inner.grad_scale, inner.found_inf = torch.ones(()), torch.tensor(float(overflowed))  # as the scaler does
            inner.step()
            return model.w.detach().numpy().copy()

    moved = np.abs(make_world(a=1).run(a_0=run)["a_0"] - START).max()
    assert moved == (0.0 if overflowed else 0.125)
