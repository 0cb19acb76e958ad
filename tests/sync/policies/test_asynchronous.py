"""Rounds with whoever has come: equal to synchronous ones when all come, and a NumPy trace when some do not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.policies.asynchronous import AsyncDiLoCo
from ictp2p.sync.policies.diloco import DiLoCo

Array = NDArray[np.float32]
F = np.float32
EVERY, RATE, LR, MU = 2, F(0.125), F(0.75), F(0.5)
START = np.array([1.0, -2.0, 0.5], F)
DEADLINE = 20.0


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-4, 5, (steps, 3)).astype(F)


def worker(
    data: Array, kind: Any, clock: list[float] | None = None, met: threading.Barrier | None = None, **options: Any
) -> Callable[[Any], Any]:
    """Trains along given gradients, with a second for each step; gives the parameters after each, and the policy."""

    def body(mesh: Any) -> Any:
        model = torch.nn.Module()
        model.w = torch.nn.Parameter(torch.from_numpy(START.copy()))
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        trace, lengths, last = [], [], 0
        with kind(mesh, model, inner, sync_every=EVERY, **options) as policy:
            for step, row in enumerate(data):
                if met is not None and step == EVERY:
                    met.wait(DEADLINE)
                model.w.grad = torch.from_numpy(row.copy())
                if clock is not None:
                    clock[0] += 1.0
                version = policy.version
                inner.step()
                trace.append(model.w.detach().numpy().copy())
                if policy.version > version:
                    lengths.append(step + 1 - last)
                    last = step + 1
        return trace, policy, lengths

    return body


asynchronous = partial(worker, kind=AsyncDiLoCo, lr=float(LR), momentum=float(MU))


def test_clusters_of_equal_speed_are_diloco_to_the_bit(make_world: Any) -> None:
    data = [rows(i, 5 * EVERY) for i in range(3)]
    names = ("a_0", "b_0", "c_0")

    def outer(parameters: list[torch.nn.Parameter]) -> Nesterov:
        return Nesterov(parameters, lr=float(LR), momentum=float(MU))

    clocks = {name: [0.0] for name in names}
    world = make_world(a=1, b=1, c=1)
    world.clock = lambda name: clocks[name.replace("/", "_")][0]
    found = world.run(**{n: asynchronous(d, clock=clocks[n], clusters=3) for n, d in zip(names, data, strict=True)})
    wanted = make_world(a=1, b=1, c=1).run(
        **{n: worker(d, DiLoCo, outer=outer) for n, d in zip(names, data, strict=True)}
    )
    for name in names:
        np.testing.assert_array_equal(np.array(found[name][0]), np.array(wanted[name][0]))
        assert found[name][1].version == wanted[name][1].version == 6


def test_contributions_that_come_apart_follow_the_papers_trace(make_world: Any) -> None:
    """The second round is of x alone; the third is of both, y's first phase after its missed round among them."""
    world, data = make_world(x=1, y=1), [rows(0, 4 * EVERY), rows(1, 3 * EVERY)]
    world.absent = {1: {"y"}}
    met = threading.Barrier(2)
    x, y = (asynchronous(d, clusters=2, proportional=False, met=met) for d in data)
    found = world.run(x_0=x, y_0=y)
    of_x, of_y = ([RATE * part.sum(0) for part in d.reshape(-1, EVERY, 3)] for d in data)
    theta, buffer, held, count = START.copy(), np.zeros(3, F), np.zeros(3, F), 0
    for deltas in ([of_x[0], of_y[0]], [of_x[1]], [of_x[2], of_y[1]], [of_x[3], of_y[2]]):
        m = len(deltas)
        mean = np.asarray(sum(F(EVERY) * d for d in deltas), F) / F(EVERY * m)
        held, count = held + mean * F(m), count + m
        move = mean * F(m) / F(2)
        if count >= 2:
            buffer = buffer * MU + held / F(2)
            move, held, count = buffer * MU + move, np.zeros(3, F), 0
        theta = theta - move * LR
    for name in ("x_0", "y_0"):
        np.testing.assert_array_equal(found[name][0][-1], theta)
        agreed = found[name][1].state.committed
        np.testing.assert_array_equal(agreed["outer momentum_buffer of w"].numpy(), buffer)
        assert float(agreed["outer count of w"]) == count


def test_a_cluster_of_half_the_speed_takes_half_the_steps(make_world: Any) -> None:
    """So both arrive together, and contributions are of one age. H itself stays."""
    world = make_world(a=1, b=1)
    clocks = {"a_0": [0.0], "b_0": [0.0]}
    world.clock = lambda name: clocks[name.replace("/", "_")][0] * (2.0 if name == "b/0" else 1.0)
    a = asynchronous(rows(0, 6 * EVERY), clock=clocks["a_0"], clusters=2)
    b = asynchronous(rows(1, EVERY + 5), clock=clocks["b_0"], clusters=2)
    found = world.run(a_0=a, b_0=b)
    assert found["a_0"][2] == [EVERY] * 6
    assert found["b_0"][2] == [EVERY, 1, 1, 1, 1, 1]
    assert found["a_0"][1].sync_every == found["b_0"][1].sync_every == EVERY
    assert found["a_0"][1].digest() == found["b_0"][1].digest()


def test_a_round_begins_with_whoever_is_there() -> None:
    """What the mesh is asked for: one is enough, and those who come with it have the least of graces."""
    model = torch.nn.Linear(2, 2)
    policy = AsyncDiLoCo(None, model, torch.optim.SGD(model.parameters()), clusters=4)  # type: ignore[arg-type]
    spec = policy._outer_round._contribution.spec
    assert 0.0 < spec.quorum * 1024 < 1.0
    assert spec.spread == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 0}, "clusters 0"),
        ({"clusters": "x"}, "clusters 'x'"),
        ({"clusters": 1.5}, "clusters 1.5"),
        ({"clusters": float("nan")}, "clusters nan"),
        ({"clusters": 2, "proportional": "x"}, "proportional 'x' is neither"),
        ({"clusters": 2, "quorum": 0.5}, "no quorum"),
        ({"clusters": 2, "lr": 0.0}, "0.0"),
        ({"clusters": 2, "lr": "x"}, "learning rate 'x'"),
        ({"clusters": 2, "momentum": None}, "momentum None"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=message):
        AsyncDiLoCo(None, model, torch.optim.SGD(model.parameters()), **options)  # type: ignore[arg-type]
