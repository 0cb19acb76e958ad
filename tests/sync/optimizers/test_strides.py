"""What is kept for a parameter lies in memory as it does, or a fused step would mix up its elements unseen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ictp2p.sync.optimizers.joint import JointOptimizer
from ictp2p.sync.policies.asynchronous import AsyncDiLoCo
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.policies.noloco import NoLoCo
from ictp2p.sync.policies.sparse import SparseDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo

POLICIES: dict[str, Callable[..., Any]] = {
    "diloco": DiLoCo,
    "aloft": partial(DiLoCo, overlap=1),
    "torch's outer": partial(DiLoCo, outer=partial(torch.optim.AdamW, lr=0.1)),
    "local sgd": LocalSGD,
    "eager": EagerDiLoCo,
    "streaming": partial(StreamingDiLoCo, fragments=2),
    "sparse": SparseDiLoCo,
    "noloco": NoLoCo,
    "asynchronous": partial(AsyncDiLoCo, clusters=2),
    "dipaco": DiPaCo,
}
INNER = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True),
    "joint": lambda parameters: JointOptimizer(*(torch.optim.AdamW([p], lr=0.01, fused=True) for p in parameters)),
}


class Laid(nn.Module):
    """Parameters whose elements do not lie in the order of their indices."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(3, 4, 3, bias=False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.turned = nn.Parameter(torch.randn(5, 3).t())

    def loss(self, step: int, names: list[str]) -> Tensor:
        """Gradients that differ in every element; a parameter that is not named has none."""
        noise = torch.Generator().manual_seed(step)
        parts = [p * torch.randn(p.shape, generator=noise) for name, p in self.named_parameters() if name in names]
        return torch.stack([part.sin().sum() for part in parts]).sum()


NAMES = [name for name, _ in Laid().named_parameters()]


def kept(inner: torch.optim.Optimizer, parameter: Tensor) -> list[Tensor]:
    state = inner.state[parameter].values()
    found = [value for value in state if isinstance(value, Tensor) and value.shape == parameter.shape]
    assert found
    return found


def train(policy: Any, here: Laid, inner: torch.optim.Optimizer, names: list[str]) -> None:
    here.loss(policy.progress.step, names).backward()
    inner.step()
    for parameter in here.parameters():
        gradient = [] if parameter.grad is None else [parameter.grad]
        for each in (*gradient, *kept(inner, parameter)):
            assert each.stride() == parameter.stride() != torch.empty(parameter.shape).stride()
    inner.zero_grad()


@pytest.mark.parametrize("kind", POLICIES)
def test_nothing_of_a_cluster_that_is_joined_is_laid_out_anew(make_world: Any, kind: str) -> None:
    """Regression: momentum of a newcomer was contiguous, and so was a gradient that only its mate had."""
    ends: dict[str, int] = {}

    def body(names: list[str], *, decides: bool = False) -> Callable[[Any], list[Tensor]]:
        def run(mesh: Any) -> list[Tensor]:
            here = Laid()
            inner = INNER["adamw"](here.parameters())
            try:
                with POLICIES[kind](mesh, here, inner, sync_every=4) as policy:
                    if decides:
                        ends["at"] = policy.progress.step + 9
                    else:
                        train(policy, here, inner, NAMES)
                    while policy.progress.step < ends.get("at", 10**6):
                        train(policy, here, inner, names)
                    held = [tensor for p in here.parameters() for tensor in (p.detach(), *kept(inner, p))]
                    return [tensor.clone() for tensor in held]
            finally:
                ends.setdefault("at", 0)

        return run

    world = make_world(a=1)
    thread = world.start("a_1", body(NAMES[:1], decides=True), after=2)
    found = world.run(a_0=body(NAMES[1:]))
    thread.join(60)
    assert not world.errors
    assert all(map(torch.equal, found["a_0"], world.results["a_1"]))


@pytest.mark.parametrize("make", INNER)
def test_what_was_saved_is_gone_on_from_as_if_it_had_not_been(make_world: Any, tmp_path: Path, make: str) -> None:
    """Regression: each element was stepped with the momentum of another."""

    def body(until: int, *, load: bool = False, save: bool = False) -> Callable[[Any], list[Tensor]]:
        def run(mesh: Any) -> list[Tensor]:
            here = Laid()
            inner = INNER[make](here.parameters())
            policy = LocalSGD(mesh, here, inner, sync_every=3)
            if load:
                policy.load(tmp_path / "at.safetensors")
            with policy:
                for step in range(6 if load else 0, until):
                    here.loss(step, NAMES).backward()
                    inner.step()
                    inner.zero_grad()
                if save:
                    policy.save(tmp_path / "at.safetensors", local=True)
            return [parameter.detach().clone() for parameter in here.parameters()]

        return run

    whole = make_world(a=1).run(a_0=body(12))["a_0"]
    make_world(a=1).run(a_0=body(6, save=True))
    assert all(map(torch.equal, whole, make_world(a=1).run(a_0=body(12, load=True))["a_0"]))
