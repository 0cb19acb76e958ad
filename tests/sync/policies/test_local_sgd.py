from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ictp2p.sync.policies.local_sgd import LocalSGD

Array = NDArray[np.float32]
START = (1.0, -2.0, 0.5, 4.0)


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-4, 5, (steps, 4)).astype(np.float32)


def local(data: Array, every: int, weight: float = 1.0) -> Callable[[Any], Array]:
    def body(mesh: Any) -> Array:
        w = torch.nn.Parameter(torch.tensor(START))
        model = torch.nn.ParameterDict({"w": w})
        inner = torch.optim.SGD([w], lr=0.125)
        with LocalSGD(mesh, model, inner, sync_every=every) as policy:
            policy.weight = weight
            for row in data:
                w.grad = torch.from_numpy(row) + w.detach()
                inner.step()
        return w.detach().numpy().copy()

    return body


def golden(data: list[Array], every: int, weights: list[float]) -> Array:
    """Average the parameters themselves, by weight."""
    thetas = [np.array(START) for _ in data]
    for step in range(len(data[0])):
        thetas = [t - 0.125 * (part[step] + t) for t, part in zip(thetas, data, strict=True)]
        if (step + 1) % every == 0:
            mean = np.average(thetas, axis=0, weights=weights)
            thetas = [mean for _ in data]
    return thetas[0]


@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.0, 3.0]])
@pytest.mark.parametrize("every", [1, 2, 4])
def test_parameters_are_averaged_by_weight(make_world: Any, every: int, weights: list[float]) -> None:
    data = [rows(i, 8) for i in range(2)]
    found = make_world(a=1, b=1).run(a_0=local(data[0], every, weights[0]), b_0=local(data[1], every, weights[1]))
    np.testing.assert_array_equal(found["a_0"], found["b_0"])
    np.testing.assert_allclose(found["a_0"], golden(data, every, weights), rtol=1e-5, atol=1e-6)


def test_h_1_is_data_parallel_training(make_world: Any) -> None:
    """Two clusters averaging after every step end where one cluster of two workers ends."""
    data = [rows(i, 6) for i in range(2)]
    apart = make_world(a=1, b=1).run(a_0=local(data[0], 1), b_0=local(data[1], 1))
    one = make_world(a=2).run(a_0=local(data[0], 1), a_1=local(data[1], 1))
    np.testing.assert_allclose(apart["a_0"], one["a_0"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(apart["a_0"], golden(data, 1, [1.0, 1.0]), rtol=1e-5, atol=1e-6)
