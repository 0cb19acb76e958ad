"""One DiLoCo cluster in plain NumPy, and workers that train by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ictp2p.sync.policies.diloco import DiLoCo

Array = NDArray[np.float32]
F = np.float32
START = np.array([1.0, -2.0, 0.5], F)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.from_numpy(START.copy()))


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-3, 4, (steps, 3)).astype(F)


def train(model: Model, inner: torch.optim.Optimizer, data: Sequence[Array] | Array) -> list[Array]:
    trace = []
    for row in data:
        model.w.grad = torch.from_numpy(np.asarray(row)) + model.w.detach()
        inner.step()
        inner.zero_grad()
        trace.append(model.w.detach().numpy().copy())
    return trace


def worker(data: Array, every: int = 4, lr: float = 0.125, **options: Any) -> Callable[[Any], Any]:
    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=lr)
        with DiLoCo(mesh, model, inner, None, every, **options) as policy:
            return train(model, inner, data), policy

    return body


class Golden:
    """One DiLoCo cluster alone, in NumPy; the caller says which rows are averaged at each step."""

    def __init__(self, lr: float = 0.125) -> None:
        self.w, self.base, self.buffer, self.lr = START.copy(), START.copy(), np.zeros(3, F), F(lr)

    def step(self, *parts: Array) -> Array:
        gradients = [part + self.w for part in parts]
        share = F(1.0 / len(parts))
        self.w = self.w - self.lr * sum(share * g for g in gradients)
        return self.w

    def sync(self) -> Array:
        delta = self.base - self.w
        self.buffer = self.buffer * F(0.9) + delta
        self.base = self.base - (self.buffer * F(0.9) + delta) * F(0.7)
        self.w = self.base.copy()
        return self.w

    def run(self, steps: Sequence[Sequence[Array]], every: int = 4) -> list[Array]:
        trace = []
        for number, parts in enumerate(steps, 1):
            self.step(*parts)
            if number % every == 0:
                self.sync()
            trace.append(self.w.copy())
        return trace


def same(found: Sequence[Array], expected: Sequence[Array]) -> None:
    assert len(found) == len(expected)
    for number, (a, b) in enumerate(zip(found, expected, strict=True), 1):
        np.testing.assert_array_equal(a, b, err_msg=f"after inner step {number}")


def together(data: Sequence[Array]) -> list[list[Array]]:
    return [list(parts) for parts in zip(*data, strict=True)]
