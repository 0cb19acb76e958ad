"""NoLoCo in plain NumPy, and workers that train by it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ictp2p.sync.policies.noloco import NoLoCo

Array = NDArray[np.float32]
F = np.float32
EVERY, RATE, LR, MU, PULL = 2, F(0.125), F(0.75), F(0.5), F(1.25)
START = np.array([1.0, -2.0, 0.5], F)
SETTINGS = {"sync_every": EVERY, "lr": float(LR), "momentum": float(MU), "pull": float(PULL)}
DEADLINE = 20.0


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-4, 5, (steps, 3)).astype(F)


class Model(torch.nn.Module):
    def __init__(self, start: Array = START) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.from_numpy(start.copy()))
        self.register_buffer("seen", torch.zeros(1))


def train(model: Any, inner: Any, data: Array) -> list[Array]:
    """The gradient is the row plus the weights; the buffer counts the sum of the rows."""
    trace = []
    for row in data:
        model.w.grad = torch.from_numpy(row) + model.w.detach()
        model.seen += float(row.sum())
        inner.step()
        trace.append(model.w.detach().numpy().copy())
    return trace


def worker(
    data: Array,
    bases: list[bytes] | None = None,
    weight: float = 1.0,
    met: threading.Barrier | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    """Trains; gives the parameters after each step, the cluster's own global ones, the buffer, and the policy.

    With `met` nobody begins the second phase before everybody has the first round behind it.
    """

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        with NoLoCo(mesh, model, inner, **{**SETTINGS, **options}) as policy:
            policy.weight = weight
            trace = []
            for step, row in enumerate(data):
                if met is not None and step == EVERY:
                    met.wait(DEADLINE)
                before = (policy.version, policy.state.digest)
                trace += train(model, inner, row[None])
                if bases is not None and policy.version > before[0]:
                    bases.append(before[1])
        agreed = policy.state.committed
        return trace, agreed["w"].numpy().copy(), float(agreed["buffer seen"]), policy

    return body


def drawn(base: bytes, names: Sequence[str]) -> list[list[int]]:
    """The pairs, written down once more: sorted by a keyed hash of the names, two by two."""
    order = sorted(names, key=lambda n: hashlib.blake2b(n.encode(), key=base, digest_size=16).digest())
    numbers = [names.index(name) for name in order]
    return [sorted(numbers[i : i + 2]) for i in range(0, len(numbers), 2)]


class Golden:
    """NoLoCo over clusters of one worker, in NumPy, one rounded operation at a time."""

    def __init__(self, weights: Sequence[float]) -> None:
        count = len(weights)
        self._weights, self._since = weights, 0
        self.theta = [START.copy() for _ in range(count)]
        self.phi = [START.copy() for _ in range(count)]
        self.momentum = [np.zeros(3, F) for _ in range(count)]
        self.traces: list[list[Array]] = [[] for _ in range(count)]

    def steps(self, data: Sequence[Array]) -> None:
        for row in zip(*data, strict=True):
            self._since += 1
            for i, g in enumerate(row):
                self.theta[i] = self.theta[i] - RATE * (g + self.theta[i])
                self.traces[i].append(self.theta[i])

    def meet(self, groups: Sequence[Sequence[int]]) -> None:
        phi, momentum = list(self.phi), list(self.momentum)
        weights, self._since = [F(self._since * w) for w in self._weights], 0
        for group in groups:
            total = F(sum(weights[i] for i in group))
            delta = np.asarray(sum(weights[i] * (phi[i] - self.theta[i]) for i in group), F) / total
            mean = np.asarray(sum(weights[i] * phi[i] for i in group), F) / total
            for i in group:
                self.momentum[i] = momentum[i] * MU + (delta * LR + (phi[i] - mean) * PULL)
                self.phi[i] = phi[i] - self.momentum[i]
                self.theta[i] = self.traces[i][-1] = self.phi[i].copy()
