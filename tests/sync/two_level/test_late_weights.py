"""Weights that come into a model between the making of a policy and its beginning are where training starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ictp2p.errors import ConfigError
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.noloco import NoLoCo
from ictp2p.sync.policies.sparse import SparseDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from ictp2p.sync.two_level.policy import Policy

POLICIES = [DiLoCo, EagerDiLoCo, SparseDiLoCo, StreamingDiLoCo, NoLoCo, DiPaCo]


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1), nn.Linear(1, 1))


def pretrained() -> dict[str, torch.Tensor]:
    return {name: torch.full_like(tensor, 5) for name, tensor in model().state_dict().items()}


def at_its_optimum(kind: Callable[..., Policy]) -> Callable[[Any], dict[str, torch.Tensor]]:
    def body(mesh: Any) -> dict[str, torch.Tensor]:
        here = model()
        inner = torch.optim.SGD(here.parameters(), lr=0.1)
        policy = kind(mesh, here, inner, sync_every=4)
        here.load_state_dict(pretrained())
        with policy:
            for _ in range(17):
                for parameter in here.parameters():
                    parameter.grad = torch.zeros_like(parameter)
                inner.step()
            assert policy.version > 3
            return policy.global_parameters()

    return body


@pytest.mark.parametrize("kind", POLICIES)
def test_what_was_loaded_before_training_began_is_no_training(make_world: Any, kind: Callable[..., Policy]) -> None:
    for found in make_world(a=2, b=1).run(**{n: at_its_optimum(kind) for n in ("a_0", "a_1", "b_0")}).values():
        for name, tensor in found.items():
            assert torch.equal(tensor, pretrained()[name]), name


@pytest.mark.parametrize("local", [False, True])
def test_what_is_written_over_a_checkpoint_is_refused(make_world: Any, tmp_path: Path, local: bool) -> None:
    def body(mesh: Any) -> None:
        here = nn.Linear(3, 1)
        inner = torch.optim.SGD(here.parameters(), lr=0.1)
        saved = DiLoCo(mesh, here, inner)
        saved.save(tmp_path / "at.safetensors", local=local)
        policy = DiLoCo(mesh, here, inner)
        policy.load(tmp_path / "at.safetensors")
        with torch.no_grad():
            here.bias.add_(1.0)
        with pytest.raises(ConfigError, match="'bias' was changed after the checkpoint was loaded"), policy:
            pass
        with torch.no_grad():
            here.bias.sub_(1.0)
        policy.load(tmp_path / "at.safetensors")
        with policy:
            assert policy.version == 1

    world = make_world(a=1)
    world.run(a_0=body)


def test_a_parameter_of_another_shape_is_refused(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        here = nn.Linear(3, 2)
        policy = DiLoCo(mesh, here, torch.optim.SGD(here.parameters(), lr=0.1))
        here.weight.data = torch.ones(1, 3)
        with pytest.raises(ConfigError, match=r"weight has the shape \[1, 3\] now, and had \[2, 3\]"), policy:
            pass

    make_world(a=1).run(a_0=body)


@pytest.mark.parametrize("every", [1, 5])
def test_so_is_one_that_gets_it_while_it_trains(make_world: Any, every: int) -> None:
    """Regression: torch said in the middle of the next round that sizes do not add up, and named no parameter."""

    def body(mesh: Any) -> None:
        here = nn.Linear(3, 2)
        inner = torch.optim.SGD(here.parameters(), lr=0.1)
        with DiLoCo(mesh, here, inner, sync_every=every):
            here.weight.data = torch.ones(1, 3)
            here.weight.sum().backward()
            with pytest.raises(ConfigError, match=r"weight has the shape \[1, 3\] now, and had \[2, 3\]"):
                inner.step()

    make_world(a=1).run(a_0=body)
