"""What a program puts in the place of what a policy was made with, and workers that do not fit each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ictp2p.errors import ConfigError, MeshMismatch, StateError
from ictp2p.sync.cluster.replica import Replica
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.state.checkpoint import Checkpoint


class Assigns(nn.Module):
    """Has a buffer that each forward pass puts another tensor in the place of."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        nn.init.ones_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, batch: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + 0.5 * batch.detach().mean(0)
        result: Tensor = self.linear(batch)
        return result


def normed() -> nn.Module:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    nn.init.ones_(model[1].weight)
    nn.init.zeros_(model[1].bias)
    return model


def train(model: nn.Module, inner: torch.optim.Optimizer, seed: int, steps: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        inner.zero_grad()
        model(torch.randn(8, 4, generator=generator)).square().mean().backward()
        inner.step()


@pytest.mark.parametrize("converted", [False, True], ids=["assigned", "converted"])
def test_a_buffer_is_averaged_whichever_tensor_it_is_by_now(make_world: Any, converted: bool) -> None:
    def body(mesh: Any) -> dict[str, list[float]]:
        model = normed() if converted else Assigns()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        policy = DiLoCo(mesh, model, inner, sync_every=3)
        if converted:
            model.double().float()  # conversions make new buffers, of the same parameters
        with policy:
            train(model, inner, sum(map(ord, mesh.name)), 3)
            held = dict(model.named_buffers())
            agreed = policy.global_parameters()
            for name, tensor in held.items():
                if tensor.is_floating_point():
                    assert torch.equal(tensor, agreed[name])
                    assert not torch.equal(tensor, torch.full_like(tensor, tensor[0].item()))
            return {name: agreed[name].tolist() for name in held if name in agreed}

    found = make_world(a=2, b=1).run(a_0=body, a_1=body, b_0=body)
    assert found["a_0"] == found["a_1"] == found["b_0"]


@pytest.mark.parametrize("replaced", ["a parameter", "a shape"])
def test_what_cannot_be_followed_is_named(make_world: Any, replaced: str) -> None:
    def body(mesh: Any) -> None:
        model = Assigns()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with DiLoCo(mesh, model, inner, sync_every=3):
            if replaced == "a parameter":
                model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
            else:
                model.mean = torch.zeros(1)
            model.linear(torch.ones(2, 4)).sum().backward()
            inner.step()

    words = {
        "a parameter": r"parameter 'linear\.weight' is another object",
        "a shape": r"mean is torch\.float32\[1\] now",
    }
    with pytest.raises(ConfigError, match=words[replaced]):
        make_world(a=1).run(a_0=body)


MISFITS: dict[str, tuple[Callable[[nn.Module], tuple[torch.optim.Optimizer, list[Any]]], str]] = {
    "optimizer": (lambda m: (torch.optim.Adam(m[0].parameters()), []), "inner optimizer: "),
    "groups": (lambda m: (torch.optim.SGD([{"params": [p]} for p in m[0].parameters()], lr=0.1), []), "1 and 1 param"),
    "frozen": (lambda m: (torch.optim.SGD(m[0].parameters(), lr=0.1), []), r"(frozen|tensor) 1\.weight"),
    "carried": (lambda m: carrying(torch.optim.SGD(m[0].parameters(), lr=0.1)), "carried: "),
}


def carrying(inner: torch.optim.Optimizer) -> tuple[torch.optim.Optimizer, list[Any]]:
    return inner, [torch.optim.lr_scheduler.StepLR(inner, 3)]


def made(kind: str, *, odd: bool) -> tuple[nn.Module, torch.optim.Optimizer, list[Any]]:
    model = nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 2 if odd and kind == "frozen" else 1, bias=False))
    nn.init.ones_(model[1].requires_grad_(False).weight)
    plain = torch.optim.SGD(model[0].parameters(), lr=0.1), list[Any]()
    inner, carry = MISFITS[kind][0](model) if odd else plain
    return model, inner, carry


@pytest.mark.parametrize("kind", MISFITS)
def test_workers_of_a_cluster_that_cannot_become_copies_of_each_other_are_told_what_differs(
    make_world: Any, kind: str
) -> None:
    def body(mesh: Any) -> None:
        model, inner, carry = made(kind, odd=mesh.name == "a/1")
        with DiLoCo(mesh, model, inner, sync_every=2, carry=carry):
            pass

    with pytest.raises(MeshMismatch, match=f"trains something else: {MISFITS[kind][1]}|{MISFITS[kind][1]}"):
        make_world(a=2).run(a_0=body, a_1=body)


def split(inner: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Give the last of its parameters a rate of their own."""
    group = inner.param_groups[0]
    first, *others = group["params"]
    group["params"] = [first]
    inner.add_param_group({"params": others, "lr": 0.01})
    return inner


@pytest.mark.parametrize("fits", [True, False])
def test_groups_of_parameters_may_be_split_in_training_and_a_newcomer_has_them_so(make_world: Any, fits: bool) -> None:
    """Regression: what they were when the policy was entered was asked for, which did not fit what was sent then."""
    ends: dict[str, int] = {}

    def first(mesh: Any) -> list[Tensor]:
        model = Assigns()
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with DiLoCo(mesh, model, inner, sync_every=3) as policy:
            train(model, inner, 0, 2)
            split(inner)
            while policy.progress.step < ends.get("at", 10**6):
                train(model, inner, policy.progress.step, 1)
            return [parameter.detach().clone() for parameter in model.parameters()]

    def second(mesh: Any) -> list[Tensor]:
        model = Assigns()
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        inner = split(inner) if fits else inner
        try:
            with DiLoCo(mesh, model, inner, sync_every=3) as policy:
                ends["at"] = policy.progress.step + 5
                train(model, inner, 1, 5)
                return [parameter.detach().clone() for parameter in model.parameters()]
        finally:
            ends.setdefault("at", 0)

    world = make_world(a=1)
    thread = world.start("a_1", second, after=2)
    if fits:
        found = world.run(a_0=first)
        thread.join(60)
        assert not world.errors
        assert all(map(torch.equal, found["a_0"], world.results["a_1"]))
        return
    with pytest.raises(MeshMismatch, match="inner optimizer: SGD of 2 parameters here, SGD of 1 and 1 parameters"):
        world.run(a_0=first)
    thread.join(60)
    assert [*world.errors] == ["a_1"]


@pytest.mark.parametrize("kind", MISFITS)
def test_a_copy_that_does_not_fit_changes_nothing(kind: str) -> None:
    (model, inner, carry), (other, theirs, carried) = made(kind, odd=False), made(kind, odd=True)
    replica = Replica(model, inner, carry)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ConfigError, match=MISFITS[kind][1]):
        replica.load(*Replica(other, theirs, carried).take())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_buffer_whose_elements_are_one_is_refused(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = Assigns()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with DiLoCo(mesh, model, inner, sync_every=3):
            model.mean = torch.zeros(1).expand(model.mean.shape)
            model.linear.weight.grad = torch.zeros_like(model.linear.weight)
            inner.step()

    with pytest.raises(ConfigError, match=r"buffer mean has several elements in one place"):
        make_world(a=1).run(a_0=body)


@pytest.mark.parametrize("words", ['{"counters": [], "version": 1', '{"version": 1e999', "[" * 100_000])
def test_words_that_another_program_wrote_are_no_checkpoint(tmp_path: Path, words: str) -> None:
    rest = ', "format": 2, "digest": "00", "settings": [], "entries": [], "local": null}' if words[0] == "{" else ""
    save_file({"a": torch.zeros(1)}, tmp_path / "file", {"ictp2p": words + rest})
    with pytest.raises(StateError, match="is no checkpoint"):
        Checkpoint(tmp_path / "file")
    with pytest.raises(StateError, match=f"^there is no checkpoint {tmp_path / 'other'}$"):
        Checkpoint(tmp_path / "other")
