"""Models and gradients as users bring them: each trains, or is refused in words, and never at the cost of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ictp2p.errors import ConfigError, NotFinite
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.noloco import NoLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo

X = torch.linspace(-1.0, 1.0, 12).view(4, 3)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.one(x))


class Empty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.nothing = nn.Linear(3, 1), nn.Parameter(torch.empty(0, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.nothing.sum()


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class Late(nn.Module):
    """Part of it has no gradient in the first steps."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.rest = nn.Linear(3, 1), nn.Linear(3, 1)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x) + (self.rest(x) if self.calls > 2 else 0.0)


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    nn.init.constant_(model[0].weight, 0.5).requires_grad_(False)  # the workers are threads, and share a generator
    return model


def train(mesh: Any, make: Callable[[], nn.Module], steps: int = 5, spoil: int | None = None) -> DiLoCo:
    torch.manual_seed(0)
    model = make()
    inner = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    x = X.to(next(model.parameters()).dtype)
    with DiLoCo(mesh, model, inner, None, 2) as policy:
        for step in range(steps):
            model(x).float().square().mean().backward()
            if step == spoil:
                next(model.parameters()).grad.fill_(float("nan"))
            inner.step()
            inner.zero_grad()
        return policy


@pytest.mark.parametrize(
    "make",
    [
        Tied,
        Empty,
        Scalar,
        Late,
        frozen,
        lambda: nn.Linear(3, 1).to(torch.bfloat16),
        lambda: nn.Linear(3, 1).to(torch.float64),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)),
    ],
    ids=["tied", "empty", "scalar", "late", "frozen", "bfloat16", "float64", "buffers"],
)
def test_it_trains_and_all_hold_the_same(make_world: Any, make: Callable[[], nn.Module]) -> None:
    world = make_world(a=2, b=1)
    found = world.run(**{name: lambda mesh: train(mesh, make) for name in ("a_0", "a_1", "b_0")})
    assert len({policy.digest() for policy in found.values()}) == 1
    assert {policy.version for policy in found.values()} == {3}


@pytest.mark.parametrize("workers", [["a_0"], ["a_0", "a_1"]])
def test_a_sparse_gradient_is_refused_in_words(make_world: Any, workers: list[str]) -> None:
    """Also of a worker that is alone, at its first step."""

    def body(mesh: Any) -> None:
        model = nn.Embedding(5, 3, sparse=True)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with DiLoCo(mesh, model, inner, None, 2):
            model(torch.tensor([1, 2])).sum().backward()
            inner.step()

    with pytest.raises(ConfigError, match=r"gradient of weight has layout torch\.sparse_coo, and cannot be averaged"):
        make_world(a=len(workers)).run(**dict.fromkeys(workers, body))


def test_a_cluster_that_diverged_brings_nothing_to_the_others(make_world: Any) -> None:
    world = make_world(a=2)

    def body(mesh: Any) -> str:
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.05)
        with DiLoCo(mesh, model, inner, None, 2) as policy:
            before = policy.digest()
            for step in range(2):
                model(X).square().mean().backward()
                if mesh.name == "a/1" and step == 0:
                    model.weight.grad.fill_(float("inf"))
                if step == 1:
                    with pytest.raises(NotFinite, match="weight, bias hold NaN or infinity"):
                        inner.step()
                else:
                    inner.step()
                inner.zero_grad()
            assert policy.digest() == before
            with torch.no_grad():
                for name, agreed in policy.global_parameters().items():
                    model.get_parameter(name).copy_(agreed)  # the program's own way back
            model(X).square().mean().backward()
            inner.step()
            assert policy.version == 2
            return policy.digest()

    assert len(set(world.run(a_0=body, a_1=body).values())) == 1


@pytest.mark.parametrize("decoded", [1.0, 0.5])
def test_a_variance_stays_one_whatever_a_codec_made_of_its_mean(decoded: float) -> None:
    """Lossy codecs err by a share of their block's largest element, which may be more than what is left."""
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    weights = Weights(model, None, [])
    model[0].running_mean.fill_(0.5)
    model[0].running_var.copy_(torch.tensor([0.25, 0.01]))
    weights.capture(1.0)
    weights.average.copy_(weights.delta)
    views = weights._views(weights.average)
    views["buffer 0.running_var"].copy_(torch.tensor([0.75, decoded + 0.01]))
    views["buffer 0.running_mean"].fill_(0.5)
    weights.finish(())
    weights.commit(1)
    assert model[0].running_var.tolist() == pytest.approx([0.25, max(0.0, 0.99 - decoded)])
    assert model[0].running_mean.tolist() == [-0.5, -0.5], "a mean may be of either sign"


class Masked(nn.Module):
    """Holds what nobody trains: a mask of attention, and angles in no exact number of bits."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
        self.register_buffer("angles", 10000.0 ** -(torch.arange(500) / 500), persistent=False)
        self.register_buffer("history", torch.tensor([-torch.inf, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        self.history[1] += 1.0
        return self.norm(self.linear(x)) @ self.mask.softmax(-1)


POLICIES = {
    "diloco": lambda *given: DiLoCo(*given, sync_every=2),
    "mixed": lambda *given: StreamingDiLoCo(*given, sync_every=4, fragments=2, overlap=1, mix=0.3),
    "eager": lambda *given: EagerDiLoCo(*given, sync_every=2),
    "pairs": lambda *given: NoLoCo(*given, sync_every=2),
    "dipaco": lambda *given: DiPaCo(*given, sync_every=2),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_buffer_that_nobody_changes_stays_bit_for_bit_even_infinite(make_world: Any, name: str) -> None:
    def body(mesh: Any) -> tuple[int, nn.Module]:
        torch.manual_seed(0)
        model = Masked()
        inner = torch.optim.SGD(model.parameters(), lr=0.01)
        with POLICIES[name](mesh, model, inner) as policy:
            for step in range(12):
                policy.weight = {"a/0": 1000.0, "a/1": 1023.0 + step, "a/2": 3.0 * step}.get(mesh.name, 7.0)
                model(X).square().mean().backward()
                inner.step()
                inner.zero_grad()
            return policy.version, model

    found = make_world(a=3, b=1).run(a_0=body, a_1=body, a_2=body, b_0=body)
    fresh = Masked()
    for version, model in found.values():
        assert version > 3
        assert torch.equal(model.mask, fresh.mask)
        assert model.history[0] == -torch.inf
        assert model.history[1] > 0.0
        if name != "pairs":  # these average values instead of differences
            assert torch.equal(model.angles, fresh.angles)
    one, other = found["a_0"][1], found["a_1"][1]
    assert torch.equal(one.norm.running_mean, other.norm.running_mean)
    assert torch.equal(one.history, other.history)


def test_a_cluster_that_missed_a_round_keeps_what_is_infinite(make_world: Any) -> None:
    def body(mesh: Any) -> nn.Module:
        torch.manual_seed(0)
        model = Masked()
        inner = torch.optim.SGD(model.parameters(), lr=0.01)
        with DiLoCo(mesh, model, inner, sync_every=2) as policy:
            while policy.version < 4:
                model(X).square().mean().backward()
                inner.step()
                inner.zero_grad()
        return model

    world = make_world(a=1, b=1)
    world.absent[1] = {"b"}
    for model in world.run(a_0=body, b_0=body).values():
        assert torch.equal(model.mask, Masked().mask)
        assert model.history[0] == -torch.inf
