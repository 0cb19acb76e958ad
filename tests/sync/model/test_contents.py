"""What is frozen has to be the same everywhere, or be said to be each cluster's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ictp2p.errors import ConfigError, MeshMismatch
from ictp2p.sync.model.contents import digests, frozen
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo

torch.manual_seed(0)
MODEL = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2), nn.Linear(2, 1))
for layer in MODEL[:2]:
    layer.requires_grad_(False)


def body(change: float = 0.0, kind: Callable[..., DiLoCo] = DiLoCo, **options: Any) -> Callable[[Any], str]:
    def work(mesh: Any) -> str:
        model = copy.deepcopy(MODEL)
        inner = torch.optim.SGD(model[2].parameters(), lr=0.1)
        policy = kind(mesh, model, inner, sync_every=2, **options)
        with torch.no_grad():
            model[1].weight[1, 0] += change  # as a base model that is loaded late
        with policy:
            for _ in range(5):
                inner.zero_grad()
                model(torch.ones(1, 3)).sum().backward()
                inner.step()
            return policy.digest()

    return work


def test_another_base_model_is_named(make_world: Any) -> None:
    world = make_world(a=1, b=1)
    with pytest.raises(MeshMismatch, match=r"frozen 1\.weight: float32\[2, 2\] [0-9a-f]{16} here, float32\[2, 2\] "):
        world.run(a_0=body(), b_0=body(1e-6))


def test_a_worker_with_another_base_model_than_its_cluster_is_named(make_world: Any) -> None:
    world = make_world(a=2)
    with pytest.raises(MeshMismatch, match=r"leader a/0 .* frozen 1\.weight: "):
        world.run(a_0=body(), a_1=body(1.0))


@pytest.mark.parametrize("kind", [DiLoCo, DiPaCo])
def test_what_is_loaded_late_alike_passes(make_world: Any, kind: Any) -> None:
    found = make_world(a=1, b=1).run(a_0=body(1.0, kind), b_0=body(1.0, kind))
    assert found["a_0"] == found["b_0"]


def test_each_cluster_may_have_its_own(make_world: Any) -> None:
    make_world(a=1, b=1).run(a_0=body(frozen="own"), b_0=body(1.0, frozen="own"))
    with pytest.raises(ConfigError, match="frozen 'any' is none of same, own"):
        make_world(a=1).run(a_0=body(frozen="any"))
    with pytest.raises(
        ConfigError, match="DiPaCo takes no frozen, which is for a model that is the same in all clusters"
    ):
        make_world(a=1).run(a_0=body(kind=DiPaCo, frozen="same"))  # type: ignore[arg-type]


def test_a_cluster_goes_on_with_what_it_made_of_its_frozen_part(make_world: Any, tmp_path: Path) -> None:
    """A teacher is frozen and changes all the same; that it was alike in the beginning is what counts."""

    def first(mesh: Any) -> None:
        model = copy.deepcopy(MODEL)
        with DiLoCo(mesh, model, torch.optim.SGD(model[2].parameters(), lr=0.1)) as policy:
            with torch.no_grad():
                model[0].bias.add_(1.0)
            policy.save(tmp_path / "at.safetensors", local=True)

    def second(mesh: Any) -> Tensor:
        model = copy.deepcopy(MODEL)
        policy = DiLoCo(mesh, model, torch.optim.SGD(model[2].parameters(), lr=0.1))
        policy.load(tmp_path / "at.safetensors")
        with policy:
            return model[0].bias.detach()

    make_world(a=1).run(a_0=first)
    found = make_world(a=1).run(a_0=second)
    assert torch.equal(found["a_0"], MODEL[0].bias + 1.0)


def test_a_checkpoint_of_another_base_model_is_refused(make_world: Any, tmp_path: Path) -> None:
    def work(mesh: Any) -> None:
        model = copy.deepcopy(MODEL)
        inner = torch.optim.SGD(model[2].parameters(), lr=0.1)
        with DiLoCo(mesh, model, inner) as policy:
            policy.save(tmp_path / "at.safetensors")
        with torch.no_grad():
            model[0].bias.add_(1.0)
        with pytest.raises(ConfigError, match=r"is of another training: frozen 0\.bias: "):
            DiLoCo(mesh, model, inner).load(tmp_path / "at.safetensors")

    make_world(a=1).run(a_0=work)


def test_a_file_from_before_frozen_parameters_were_compared_is_loaded_as_ones_own(
    make_world: Any, tmp_path: Path
) -> None:
    """Such a file has no lines of them, as one that is saved with `frozen="own"` today."""

    def work(mesh: Any) -> None:
        model = copy.deepcopy(MODEL)
        inner = torch.optim.SGD(model[2].parameters(), lr=0.1)
        with DiLoCo(mesh, model, inner, frozen="own") as policy:
            policy.save(tmp_path / "at.safetensors")
        with pytest.raises(ConfigError, match=r"of another training: frozen 0\.weight: .* here, none there"):
            DiLoCo(mesh, model, inner).load(tmp_path / "at.safetensors")
        DiLoCo(mesh, model, inner, frozen="own").load(tmp_path / "at.safetensors")

    make_world(a=1).run(a_0=work)


def test_a_frozen_parameter_whose_name_nobody_would_read_is_refused(make_world: Any) -> None:
    """Regression: it was agreed on, and no newcomer could read the manifest."""

    def work(mesh: Any) -> None:
        model = nn.ModuleDict({"x" * 1020: nn.Linear(1, 1).requires_grad_(False), "trained": nn.Linear(1, 1)})
        policy = DiLoCo(mesh, model, torch.optim.SGD(model["trained"].parameters(), lr=0.1))
        with pytest.raises(ConfigError, match=r"setting of the shared state has 103[0-9] characters"), policy:
            """It is not entered."""

    make_world(a=1).run(a_0=work)


@given(
    st.lists(st.floats(width=16), min_size=1, max_size=40),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
)
def test_a_digest_is_of_the_bytes_the_dtype_and_the_shape(values: list[float], dtype: torch.dtype) -> None:
    tensor = torch.tensor(values).to(dtype)
    others = {
        "same": tensor.repeat(2)[: len(values)],
        "strided": torch.stack([tensor, tensor]).t()[:, 1],
        "bytes": torch.cat([tensor[1:], tensor[:1] + 1.0]),
        "shape": tensor[None],
        "dtype": tensor.view(torch.int16 if tensor.itemsize == 2 else torch.int32),
    }
    found = digests({"it": tensor, **others})
    assert {found.pop("same"), found.pop("strided")} == {found.pop("it")}
    if not torch.equal(others["bytes"].nan_to_num(1e3), tensor.nan_to_num(1e3)) and not tensor.isnan().any():
        assert len(set(found.values()) | set(digests({"it": tensor}).values())) == 4


def test_what_has_no_bytes_is_compared_by_its_shape() -> None:
    held = torch.ones(2, 3).to_sparse()
    assert frozen({"base": held, "other": torch.zeros(1)})[0] == ("frozen base", "float32[2, 3]")


class Wrapping(Tensor):
    """Made of another, as a quantized one is: nothing of it can be looked at."""

    @staticmethod
    def __new__(cls, held: Tensor) -> Wrapping:
        return Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(function)


@pytest.mark.parametrize(
    "held",
    [torch.ones(3).to_sparse(), torch.ones(3, device="meta"), torch.ones(3).to_mkldnn(), Wrapping(torch.ones(3))],
)
def test_what_is_made_of_other_tensors_or_of_none_has_no_digest(held: Tensor) -> None:
    assert digests({"it": held}) == {"it": b""}


def test_what_has_bytes_and_cannot_be_read_is_an_error() -> None:
    """Regression: out of memory, a worker had another line about a frozen parameter than all others: none."""
    more_than_fits = torch.ones(1).expand(2**50)
    with pytest.raises(RuntimeError, match="memory"):
        frozen({"base": more_than_fits})
