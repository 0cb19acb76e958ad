"""A model that says whose gradients are in it: each step of each worker has a place of its own there.

What a round has brought can be worked out from two versions of the agreed state, with the outer optimizer undone. So
whoever sees all versions can say which gradients each round held and at which weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import ictp2p
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.two_level.policy import Policy
from sim.training import Training

STEPS = 800
"""Places of a worker, over all of its lives."""
_NOTHING = 1e-3
"""What rounding leaves of nothing, where momentum is undone."""


class Marks(torch.nn.Module):
    """So many parameters, each with a place for each step of each worker."""

    def __init__(self, workers: int, parts: int) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(workers * STEPS)) for _ in range(parts))

    def trained(self, place: int) -> None:
        """Have the gradients say so."""
        for part in self.parts:
            part.grad = torch.zeros_like(part)
            part.grad[place] = 1.0


class Count(torch.optim.Optimizer):
    """Takes one from each place that has a gradient, whatever share of the average that is."""

    def __init__(self, model: Marks) -> None:
        super().__init__(model.parameters(), {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for part in self.param_groups[0]["params"]:
            if part.grad is not None:
                part.sub_((part.grad > 0).to(part.dtype))


@dataclass(frozen=True)
class Kind:
    """A policy with its options, and what of its arithmetic a judge has to know."""

    policy: type[Policy]
    options: Mapping[str, Any]
    lr: float = 1.0
    momentum: float = 0.0
    parts: int = 1
    exact: bool = True
    """Whether a contribution counts what is in it: what is trained under a round does, though its landing undoes it."""
    keeps: bool = True
    """Whether what a worker has trained stays in its model, or in the state that it holds."""
    error: float = 1e-3
    """By how much of itself an average may be off: what is encoded for the wire is."""

    def make(self, training: Training, model: Marks, inner: Count) -> Policy:
        """The policy of one worker."""
        given = dict(self.options)
        if self.policy not in (ictp2p.LocalSGD, ictp2p.AsyncDiLoCo, ictp2p.NoLoCo):
            given["outer"] = lambda parameters: Nesterov(parameters, lr=self.lr, momentum=self.momentum)
        return self.policy(training, model, inner, **given)

    def average(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor], name: str, clusters: int) -> Tensor:
        """What led from one version to the next: the mean of so many contributions, of one tensor."""
        if torch.equal(before[name], after[name]):
            return torch.zeros_like(before[name])
        found = self._undone(before, after, name, clusters)
        return torch.where(found.abs() < _NOTHING, 0.0, found)

    def _undone(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor], name: str, clusters: int) -> Tensor:
        if not self.momentum:
            return (before[name] - after[name]) / self.lr
        momentum, count, held = (f"outer {kept} of {name}" for kept in ("momentum_buffer", "count", "held"))
        gained = after[momentum] - self.momentum * before[momentum]
        every = self.options.get("clusters", 1)
        if count not in before or (clusters >= every and not before[count].item()):
            return gained
        share = after[held] - before[held] if after[count].item() else gained * every - before[held]
        return share / min(clusters, every)


_HALVES = [["parts.0"], ["parts.1"]]
_TRAINS_ON: dict[str, Any] = {"lr": 0.4, "momentum": 0.9, "exact": False, "keeps": False}
KINDS = {
    "every step": Kind(ictp2p.LocalSGD, {"sync_every": 1}),
    "averages": Kind(ictp2p.LocalSGD, {"sync_every": 4}),
    "half precision": Kind(ictp2p.LocalSGD, {"sync_every": 3, "codec": "bfloat16"}, error=2e-2),
    "discounted": Kind(ictp2p.LocalSGD, {"sync_every": 3, "late": "discount"}, exact=False),
    "dropped": Kind(ictp2p.LocalSGD, {"sync_every": 3, "late": "drop", "quorum": 0.5}, keeps=False),
    "momentum": Kind(ictp2p.DiLoCo, {"sync_every": 4}, 0.7, 0.9),
    "quorum": Kind(ictp2p.DiLoCo, {"sync_every": 3, "quorum": 0.5}, 0.7, 0.9),
    "impatient": Kind(ictp2p.DiLoCo, {"sync_every": 3, "without_quorum": "continue"}, 0.7, 0.9, keeps=False),
    "fragments": Kind(ictp2p.DiLoCo, {"sync_every": 3, "fragments": _HALVES}, 0.7, 0.9, 2),
    "streaming": Kind(
        ictp2p.StreamingDiLoCo, {"sync_every": 6, "fragments": _HALVES, "overlap": 2}, parts=2, **_TRAINS_ON
    ),
    "overlap": Kind(ictp2p.StreamingDiLoCo, {"sync_every": 4, "fragments": 1, "overlap": 1}, **_TRAINS_ON),
    "eager": Kind(ictp2p.EagerDiLoCo, {"sync_every": 3}, 0.7, 0.9, keeps=False),
    "asynchronous": Kind(ictp2p.AsyncDiLoCo, {"sync_every": 4, "clusters": 2}, 0.7, 0.9),
    "asynchronous fragments": Kind(
        ictp2p.AsyncDiLoCo, {"sync_every": 4, "clusters": 3, "proportional": False, "fragments": _HALVES}, 0.7, 0.9, 2
    ),
}


def places(marked: Tensor) -> set[int]:
    """Where there is something."""
    return set(marked.nonzero().flatten().tolist())


def bits(tensors: Mapping[str, Tensor]) -> bytes:
    """All of them, to the bit."""
    return b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in sorted(tensors.items()))
