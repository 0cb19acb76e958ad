"""What an optimizer keeps of the parameters follows a round, and nothing else of its state is touched.

Nor does it lose digits on its way to a newcomer, or to a file and back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.copies import following
from ictp2p.sync.optimizers.joint import JointOptimizer
from ictp2p.sync.optimizers.reload import reload
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


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


def pushed(here: nn.Module, inner: torch.optim.Optimizer, step: int) -> None:
    """A step on gradients that differ in every element, and from step to step."""
    for number, parameter in enumerate(here.parameters()):
        noise = torch.Generator().manual_seed(100 * step + number)
        parameter.grad = torch.randn(parameter.shape, generator=noise).bfloat16()
    inner.step()


def masters(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return Masters(parameters)


def joint(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    first, *others = parameters
    return JointOptimizer(Masters([first]), Masters(others))


def held(here: nn.Module, inner: torch.optim.Optimizer) -> list[Tensor]:
    kept = [inner.state[p][key] for p in here.parameters() for key in ("master", "momentum", "steps")]
    return [*(p.detach().clone() for p in here.parameters()), *(tensor.clone() for tensor in kept)]


def alike(some: list[Tensor], others: list[Tensor]) -> bool:
    return [t.dtype for t in some] == [t.dtype for t in others] and all(map(torch.equal, some, others))


def until(ends: dict[str, int], make: Make, *, decides: bool = False) -> Callable[[Any], list[Tensor]]:
    """Trains until the step that the newcomer decides on when it has begun."""

    def body(mesh: Any) -> list[Tensor]:
        here = model()
        inner = make(here.parameters())
        try:
            with DiLoCo(mesh, here, inner, sync_every=5) as policy:
                if decides:
                    ends["at"] = policy.progress.step + 7
                while policy.progress.step < ends.get("at", 10**6):
                    pushed(here, inner, policy.progress.step)
                return held(here, inner)
        finally:
            ends.setdefault("at", 0)  # nobody is to wait for a newcomer that failed

    return body


@pytest.mark.parametrize("make", [masters, joint])
def test_masters_of_a_newcomer_are_those_of_its_source(make_world: Any, make: Make) -> None:
    """Regression: torch rounded them to bfloat16, and the workers of a cluster went apart."""
    ends: dict[str, int] = {}
    world = make_world(a=1)
    thread = world.start("a_1", until(ends, make, decides=True), after=2)
    found = world.run(a_0=until(ends, make))
    thread.join(60)
    assert not world.errors
    assert found["a_0"][-2].dtype == torch.float32
    assert alike(found["a_0"], world.results["a_1"])


@pytest.mark.parametrize("make", [masters, joint])
def test_masters_come_back_from_a_file_as_they_were(make_world: Any, tmp_path: Path, make: Make) -> None:
    """Regression: they were rounded to bfloat16, and no worker had their digits any more."""
    path = tmp_path / "at.safetensors"

    def first(mesh: Any) -> list[Tensor]:
        here = model()
        inner = make(here.parameters())
        with DiLoCo(mesh, here, inner, sync_every=5) as policy:
            for step in range(7):
                pushed(here, inner, step)
            policy.save(path, local=True)
            return held(here, inner)

    def second(mesh: Any) -> list[Tensor]:
        here = model()
        inner = make(here.parameters())
        DiLoCo(mesh, here, inner, sync_every=5).load(path)
        return held(here, inner)

    saved = make_world(a=1).run(a_0=first)["a_0"]
    assert alike(saved, make_world(a=1).run(a_0=second)["a_0"])


class Aside(torch.optim.SGD):
    """Keeps a tensor outside of its state, and rounds it whenever it is loaded."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, lr=0.1)
        self.scale = torch.ones(2)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "scale": [self.scale]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scale = state_dict.pop("scale")[0].bfloat16()
        super().load_state_dict(state_dict)


def test_what_cannot_be_kept_is_named() -> None:
    inner = Aside(model().parameters())
    with pytest.raises(ConfigError, match=r"makes torch.bfloat16 of state_dict\(\)\['scale'\]\[0\], which was torch.f"):
        reload(inner, inner.state_dict())


def test_lists_and_trees_of_an_optimizers_state_are_kept() -> None:
    here = model()
    inner = torch.optim.SGD(here.parameters(), lr=0.1)
    kept = {"list": [torch.full((2,), 0.1)], "pair": (1, torch.tensor(0.1)), "tree": {"it": torch.tensor(0.1)}, "n": 3}
    inner.state[here[0].weight] = kept
    other = torch.optim.SGD(here.parameters(), lr=0.1)
    reload(other, copy.deepcopy(inner.state_dict()))
    found = other.state[here[0].weight]
    tensors = [(kept["list"][0], found["list"][0]), (kept["pair"][1], found["pair"][1])]
    tensors.append((kept["tree"]["it"], found["tree"]["it"]))
    assert all(one.dtype == other.dtype and torch.equal(one, other) for one, other in tensors)
    assert (found["n"], type(found["pair"])) == (3, tuple)


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
