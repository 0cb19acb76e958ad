"""Policies against Streaming DiLoCo in plain torch: unequal weights, tied and half-precision parameters, odd lengths.

The reference runs all clusters in one loop, as the paper states it; with one fragment, no overlap and no mix it is
DiLoCo. It shares no code with the policies, and takes autograd's gradients of a real model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ictp2p.sync.policies.streaming import StreamingDiLoCo

LR, MU, RATE, STEPS = 0.4, 0.9, 0.1, 23
WEIGHTS = (1.0, 3.0, 0.5)
CLUSTERS = "abc"


def tied(dtype: torch.dtype) -> nn.Sequential:
    """Layers that are linear, the last with the weight of the first."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4, dtype=dtype) for _ in range(4)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    model[3].weight = model[0].weight
    return model


def train(model: nn.Module, inner: torch.optim.Optimizer, cluster: int, step: int) -> None:
    drawn = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(1000 * cluster + step))
    inputs, wanted = drawn.to(next(model.parameters()).dtype)
    inner.zero_grad()
    (torch.tanh(model(inputs)) - wanted).float().pow(2).mean().backward()
    inner.step()


def worker(model: nn.Module, cluster: int, **options: Any) -> Callable[[Any], Any]:
    def body(mesh: Any) -> Any:
        inner = torch.optim.SGD(model.parameters(), lr=RATE)
        with StreamingDiLoCo(mesh, model, inner, **options) as policy:
            policy.weight = WEIGHTS[cluster]
            for step in range(STEPS):
                train(model, inner, cluster, step)
        return policy.state.committed

    return body


class Reference:
    """All clusters in one place; `models` train, `agreed` and `momentum` are what they have in common."""

    def __init__(self, model: nn.Module, fragments: int, every: int, overlap: int, mix: float) -> None:
        self.models = [copy.deepcopy(model) for _ in WEIGHTS]
        self.agreed = {name: p.detach().float().clone() for name, p in model.named_parameters()}
        self.momentum = {name: torch.zeros_like(value) for name, value in self.agreed.items()}
        self.fragments, self.overlap, self.mix = fragments, overlap, mix
        turns = [(turn + 1) * every // fragments for turn in range(fragments)]
        self.due = [phase + turn for phase in range(0, STEPS, every) for turn in turns]

    def run(self) -> None:
        inners = [torch.optim.SGD(model.parameters(), lr=RATE) for model in self.models]
        landings: dict[int, list[dict[str, Tensor]]] = {}
        for step in range(STEPS):
            for cluster, (model, inner) in enumerate(zip(self.models, inners, strict=True)):
                train(model, inner, cluster, step)
            if step + 1 in landings:
                self.land(landings.pop(step + 1))
            if step + 1 in self.due:
                landings[step + 1 + self.overlap] = self.capture(self.due.index(step + 1) % self.fragments)
            if step + 1 in landings:
                self.land(landings.pop(step + 1))

    def capture(self, fragment: int) -> list[dict[str, Tensor]]:
        """From what was loaded, which in half precision is the rounded value."""
        return [
            {
                name: self.agreed[name].to(p.dtype).float() - p.detach().float()
                for name, p in model.named_parameters()
                if int(name.split(".")[0]) % self.fragments == fragment
            }
            for model in self.models
        ]

    @torch.no_grad()
    def land(self, deltas: list[dict[str, Tensor]]) -> None:
        for name in deltas[0]:
            mean = torch.stack([w * d[name] for w, d in zip(WEIGHTS, deltas, strict=True)]).sum(0) / sum(WEIGHTS)
            self.momentum[name] = MU * self.momentum[name] + mean
            self.agreed[name] = self.agreed[name] - LR * (mean + MU * self.momentum[name])
            for model in self.models:
                local = model.get_parameter(name)
                local.copy_((1 - self.mix) * self.agreed[name] + self.mix * local.float())


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize(
    ("fragments", "every", "overlap", "mix"), [(1, 5, 0, 0.0), (2, 7, 2, 0.25), (3, 10, 3, 0.0), (1, 6, 4, 0.5)]
)
def test_parameters_and_momentum_are_those_of_the_paper(
    make_world: Any, dtype: torch.dtype, error: float, fragments: int, every: int, overlap: int, mix: float
) -> None:
    options: dict[str, Any] = {"fragments": fragments, "overlap": overlap, "mix": mix}
    wanted = Reference(tied(dtype), every=every, **options)
    wanted.run()
    models = [tied(dtype) for _ in CLUSTERS]
    bodies = {f"{n}_0": worker(models[k], k, sync_every=every, **options) for k, n in enumerate(CLUSTERS)}
    found = make_world(**dict.fromkeys(CLUSTERS, 1)).run(**bodies)
    for name, value in wanted.agreed.items():
        for cluster, model, reference in zip(CLUSTERS, models, wanted.models, strict=True):
            state = found[f"{cluster}_0"]
            pairs = [
                (state[name], value),
                (state[f"outer momentum_buffer of {name}"], wanted.momentum[name]),
                (model.get_parameter(name), reference.get_parameter(name)),
            ]
            for ours, theirs in pairs:
                torch.testing.assert_close(ours, theirs, rtol=error, atol=error)
