"""Clusters that train paths of one pool of modules, and what must become of these, in plain NumPy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.policies.dipaco import DiPaCo

Array = NDArray[np.float32]
F = np.float32
EVERY, RATE, LR, MU = 2, F(0.125), F(0.75), F(0.5)
POOL = {name: np.arange(1, 4, dtype=F) * (n + 1) for n, name in enumerate("vwxyz")}
DEADLINE = 20.0


class Part(torch.nn.Module):
    def __init__(self, start: Array) -> None:
        super().__init__()
        self.p = torch.nn.Parameter(torch.from_numpy(start.copy()))


def path(names: str, shift: float = 0.0) -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict({name: Part(POOL[name] + F(shift)) for name in names})


def rows(worker: int, steps: int, names: str) -> dict[str, Array]:
    return {n: np.random.default_rng([worker, ord(n)]).integers(-4, 5, (steps, 3)).astype(F) for n in names}


def nesterov(parameters: list[torch.nn.Parameter]) -> Nesterov:
    return Nesterov(parameters, lr=float(LR), momentum=float(MU))


def train(model: Any, inner: Any, data: Mapping[str, Array], steps: range) -> None:
    for step in steps:
        for name, part in model.items():
            part.p.grad = torch.from_numpy(data[name][step].copy()) + part.p.detach()
        inner.step()


def worker(
    data: Mapping[str, Array],
    weight: float = 1.0,
    kind: Any = DiPaCo,
    shift: float = 0.0,
    met: threading.Barrier | None = None,
) -> Callable[[Any], Any]:
    """Trains a path; gives its local and its agreed parameters by module, and the policy."""

    def body(mesh: Any) -> Any:
        model = path("".join(data), shift)
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        steps = len(next(iter(data.values())))
        with kind(mesh, model, inner, nesterov, sync_every=EVERY) as policy:
            policy.weight = weight
            train(model, inner, data, range(min(steps, EVERY)))
            if met is not None:
                met.wait(DEADLINE)
            train(model, inner, data, range(EVERY, steps))
        local = {name: part.p.detach().numpy().copy() for name, part in model.items()}
        return local, {name: policy.state.committed[f"{name}.p"].numpy().copy() for name in data}, policy

    return body


class Golden:
    """A pool of modules with an outer momentum each, and clusters with a path through it, one worker each."""

    def __init__(self, paths: Mapping[str, str], weights: Mapping[str, float]) -> None:
        self.paths, self.weights = dict(paths), dict(weights)
        self.phi = {name: POOL[name].copy() for name in POOL}
        self.momentum = {name: np.zeros(3, F) for name in POOL}
        self.theta = {(c, m): POOL[m].copy() for c, names in paths.items() for m in names}

    def steps(self, data: Mapping[str, Mapping[str, Array]], steps: range, only: str = "") -> None:
        for cluster, names in self.paths.items():
            for step in steps if cluster in (only or cluster) else ():
                for m in names:
                    theta = self.theta[cluster, m]
                    self.theta[cluster, m] = theta - RATE * (data[cluster][m][step] + theta)

    def meet(self, clusters: str, brought: Mapping[str, Mapping[str, Array]] | None = None) -> None:
        """Average each module over those of `clusters` that hold it; some bring what they moved from elsewhere."""
        for m in POOL:
            holders = [c for c in clusters if m in self.paths.get(c, "")]
            if not holders:
                continue
            weights = {c: F(EVERY * self.weights[c]) for c in holders}
            moved = {c: (brought or {}).get(c, {}).get(m, self.phi[m] - self.theta[c, m]) for c in holders}
            delta = np.asarray(sum(weights[c] * moved[c] for c in holders), F) / F(sum(weights.values()))
            self.momentum[m] = self.momentum[m] * MU + delta
            self.phi[m] = self.phi[m] - (self.momentum[m] * MU + delta) * LR
            self.theta.update({(c, m): self.phi[m].copy() for c in holders})


def alone(names: str) -> Any:
    """The weights of a path, of no cluster."""
    model = path(names)
    return DiPaCo(None, model, torch.optim.SGD(model.parameters()))._weights  # type: ignore[arg-type]


PATHS = {"a": "vx", "b": "xy", "c": "yz"}
"""v and z are held by one cluster each, x and y by two."""
