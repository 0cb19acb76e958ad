"""What an optimizer keeps of the parameters follows a round, and nothing else of its state is touched."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ictp2p.sync.copies import following
from ictp2p.sync.diloco import DiLoCo
from ictp2p.sync.eager import EagerDiLoCo
from ictp2p.sync.streaming import StreamingDiLoCo


class Masters(torch.optim.Optimizer):
    """Momentum in float32, on copies of the parameters: these are the copies, rounded."""

    def __init__(self, params: Any, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["master"] = parameter.detach().float().clone()
                    state["momentum"] = torch.zeros_like(state["master"])
                    state["steps"] = torch.tensor(0.0)
                state["steps"] += 1
                state["momentum"].mul_(0.5).add_(parameter.grad.float())
                state["master"].sub_(state["momentum"], alpha=group["lr"])
                parameter.copy_(state["master"])


torch.manual_seed(0)
MODEL = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 3), nn.Linear(3, 1)).bfloat16()
nn.init.zeros_(MODEL[3].bias)


def model() -> nn.Module:
    return copy.deepcopy(MODEL)


def pulled(towards: float, kind: Callable[..., Any]) -> Callable[[Any], list[float]]:
    def body(mesh: Any) -> list[float]:
        here = model()
        inner = Masters(here.parameters())
        found = []
        with kind(mesh, here, inner, lambda p: torch.optim.SGD(p, lr=1.0), sync_every=10) as policy:
            while policy.version < 5:
                before = policy.version
                for parameter in here.parameters():
                    parameter.grad = torch.full_like(parameter, -towards)
                inner.step()
                if policy.version > before:
                    held = [inner.state[p]["master"].bfloat16() for p in here.parameters()]
                    assert all(map(torch.equal, held, here.parameters()))
                    moved = (here[0].weight.float() - MODEL[0].weight.float()).abs().max()
                    found.append(moved.item())
        return found

    return body


@pytest.mark.parametrize("kind", [DiLoCo, EagerDiLoCo, StreamingDiLoCo])
def test_masters_in_float32_follow_what_was_agreed(make_world: Any, kind: Callable[..., Any]) -> None:
    found = make_world(a=2, b=1).run(**{n: pulled(1.0, kind) for n in ("a_0", "a_1", "b_0")})
    assert found["a_0"] == found["a_1"]


def test_clusters_that_are_pulled_apart_meet_in_the_middle(make_world: Any) -> None:
    found = make_world(a=1, b=1).run(a_0=pulled(1.0, DiLoCo), b_0=pulled(-1.0, DiLoCo))
    assert max(found["a_0"] + found["b_0"]) < 0.004  # apart, each has gone five times as far as in one phase: 0.1


def trained(make: Callable[..., torch.optim.Optimizer], steps: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    here = model().float()
    inner = make(here.parameters())
    for step in range(steps):
        inner.zero_grad()
        here(torch.linspace(-1, 1, 8).view(2, 4) + step).square().mean().backward()
        inner.step()
    return here, inner


TORCHS = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adagrad", "Adadelta", "Adafactor"]


@pytest.mark.parametrize("name", TORCHS)
def test_of_torchs_own_state_nothing_is_touched(name: str) -> None:
    momentum = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    here, inner = trained(lambda p: getattr(torch.optim, name)(p, lr=0.01, **momentum))
    before = copy.deepcopy(inner.state_dict()["state"])
    with following(inner), torch.no_grad():
        for parameter in here.parameters():
            parameter.add_(1.0)
    for number, state in inner.state_dict()["state"].items():
        for key, value in state.items():
            assert not isinstance(value, Tensor) or torch.equal(value, before[number][key])


def test_zeros_are_no_copy_of_zeros() -> None:
    here = nn.Linear(3, 1)
    nn.init.zeros_(here.bias)
    inner = torch.optim.SGD([here.bias], lr=0.0, momentum=0.9)
    here.bias.grad = torch.zeros(1)
    inner.step()
    with following(inner), torch.no_grad():
        here.bias.fill_(1.0)
    assert inner.state[here.bias]["momentum_buffer"].item() == 0.0


@given(st.lists(st.booleans(), min_size=12, max_size=12))
def test_where_nothing_changed_a_copy_keeps_its_digits(changed: list[bool]) -> None:
    here = model()
    inner = Masters(here.parameters())
    for parameter in here.parameters():
        parameter.grad = torch.linspace(0.1, 1.0, parameter.numel()).view(parameter.shape).bfloat16()
    inner.step()
    weight = here[0].weight
    before = inner.state[weight]["master"].clone()
    mask = torch.tensor(changed).view(weight.shape)
    with following(inner), torch.no_grad():
        weight[mask] += 3.0
    after = inner.state[weight]["master"]
    assert torch.equal(after[~mask], before[~mask])
    assert torch.equal(after[mask], weight[mask].float())
