"""A program may set another default device and type of tensors than torch begins with: ours stay as they are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ictp2p
from ictp2p.calls.tensors import Bundle
from ictp2p.torch_backend.memory import Memory
from tests.sync.fake_mesh import FakeMesh
from tests.sync.policy_world import World

PACKAGE = Path(ictp2p.__file__).parent
MAKERS = {
    "arange",
    "as_tensor",
    "asarray",
    "empty",
    "empty_strided",
    "eye",
    "full",
    "linspace",
    "logspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "scalar_tensor",
    "tensor",
    "zeros",
}
"""Functions of torch whose tensors are of the default type, and lie on the default device."""
POLICIES: dict[str, Callable[..., Any]] = {
    "local_sgd": lambda *given: ictp2p.LocalSGD(*given, sync_every=2),
    "diloco": lambda *given: ictp2p.DiLoCo(*given, sync_every=2),
    "adam": lambda peer, model, inner: ictp2p.DiLoCo(
        peer, model, inner, lambda parameters: torch.optim.Adam(parameters, lr=0.1), sync_every=2
    ),
    "streaming": lambda *given: ictp2p.StreamingDiLoCo(*given, sync_every=4, fragments=2, overlap=1),
    "eager": lambda *given: ictp2p.EagerDiLoCo(*given, sync_every=2),
    "sparse": lambda *given: ictp2p.SparseDiLoCo(*given, sync_every=2),
    "noloco": lambda *given: ictp2p.NoLoCo(*given, sync_every=2),
    "dipaco": lambda *given: ictp2p.DiPaCo(*given, sync_every=2),
    "async": lambda *given: ictp2p.AsyncDiLoCo(*given, clusters=2, sync_every=2, proportional=False),
}


@pytest.fixture
def default_dtype() -> Iterator[Callable[[torch.dtype], None]]:
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


def made(source: str) -> Iterator[ast.Call]:
    """Calls of torch's functions that make tensors."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name)) if name in MAKERS:
                yield node


@pytest.mark.parametrize(
    "path", sorted(p for p in PACKAGE.rglob("*.py") if "demo" not in p.parts), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_every_tensor_says_where_it_lies_and_of_what_type(path: Path) -> None:
    source = path.read_text()
    silent = {
        f"line {call.lineno}: {ast.get_source_segment(source, call)}"
        for call in made(source)
        if not {"device", "dtype"} <= {keyword.arg for keyword in call.keywords}
    }
    assert not silent


def trained(make: Callable[..., Any], device: str) -> set[tuple[int, str]]:
    """Versions and digests of three workers after some steps, under a default device of each."""

    def body(mesh: Any) -> tuple[int, str]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(torch.float32)
        batches = [torch.randn(4, 3).to(torch.float32) for _ in range(7)]
        inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
        with torch.device(device), make(mesh, model, inner) as policy:
            for batch in batches:
                model(batch).square().mean().backward()
                inner.step()
                inner.zero_grad()
            policy.global_parameters()
            return policy.version, policy.digest()

    world = World(a=2, b=1)
    return set(world.run(a_0=body, a_1=body, b_0=body).values())


@pytest.mark.parametrize("name", POLICIES)
def test_policies_compute_on_the_host_wherever_the_program_has_tensors_made(name: str) -> None:
    versions = {version for version, _ in trained(POLICIES[name], "meta")}
    assert min(versions) >= 3


def test_residuals_are_float32_whatever_the_default(default_dtype: Any) -> None:
    model = nn.Linear(3, 4)
    default_dtype(torch.bfloat16)
    policy = ictp2p.SparseDiLoCo(FakeMesh(World(a=1), "a/0"), model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert {residual.dtype for residual in policy._weights.residuals} == {torch.float32}


def test_calls_hold_what_they_bring_on_the_host() -> None:
    with torch.device("meta"):
        assert Bundle([torch.ones(3, device="cpu")]).copied().device.type == "cpu"


def test_process_groups_hold_what_they_bring_on_the_host() -> None:
    strided = torch.zeros(2, 3, device="cpu").t()
    with torch.device("meta"):
        assert Memory().write(strided).device.type == "cpu"
