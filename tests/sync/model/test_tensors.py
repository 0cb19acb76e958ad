"""What of a model is averaged is known by name, and found again wherever the program has put it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ictp2p.errors import ConfigError
from ictp2p.sync.model.tensors import ModelTensors


def normed() -> nn.Module:
    """With a frozen parameter, and buffers of which one counts, so that there is no mean of it."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model[0].bias.requires_grad_(False)
    return model


def test_trained_parameters_and_floating_point_buffers_are_averaged() -> None:
    tensors = ModelTensors(normed())
    assert [*tensors.trained] == ["0.weight", "1.weight", "1.bias"]
    assert [*tensors.buffers] == ["buffer 1.running_mean", "buffer 1.running_var"]
    assert [*tensors.here] == [*tensors.trained, *tensors.buffers]
    assert tensors.variances == {"buffer 1.running_var"}


def test_a_norm_that_is_the_model_itself_has_a_variance_too() -> None:
    assert ModelTensors(nn.BatchNorm1d(4)).variances == {"buffer running_var"}


def test_a_buffer_is_found_again_where_the_program_has_put_it() -> None:
    model = normed()
    tensors = ModelTensors(model)
    weight, model[1].running_mean = model[0].weight, torch.ones(4)
    tensors.follow()
    assert tensors.buffers["buffer 1.running_mean"] is model[1].running_mean
    assert tensors.here["buffer 1.running_mean"] is model[1].running_mean
    assert tensors.here["0.weight"] is weight


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (None, "running_mean is None now, and was torch.float32"),
        (torch.zeros(1), r"running_mean is torch.float32\[1\] now"),
        (torch.zeros(4, dtype=torch.int64), r"running_mean is torch.int64\[4\] now"),
        (torch.zeros(1).expand(4), r"buffer 1.running_mean has several elements in one place"),
    ],
    ids=["gone", "shape", "dtype", "expanded"],
)
def test_a_buffer_that_cannot_be_followed_is_named(now: Tensor | None, words: str) -> None:
    model = normed()
    tensors = ModelTensors(model)
    model[1].running_mean = now
    with pytest.raises(ConfigError, match=words):
        tensors.follow()


def test_what_belongs_together_comes_into_one_fragment() -> None:
    tensors = ModelTensors(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert tensors.divide(1) == (tuple(tensors.here),)
    norm = ("1.weight", "1.bias", "buffer 1.running_mean", "buffer 1.running_var")
    assert tensors.divide(2) == (("0.weight", "0.bias"), norm)
    assert tensors.divide([["1"], []]) == (norm, ("0.weight", "0.bias"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Linear(3, 1).requires_grad_(False), "model Linear has no parameter that could be trained: none requires"),
        (nn.ParameterList([nn.Parameter(torch.empty(0))]), "has to train has no element here: 0"),
        (nn.ReLU(), "model ReLU has no parameter that could be trained: it has none at all"),
        (nn.ParameterList([nn.Parameter(torch.ones(2, dtype=torch.complex64))]), "'0' is torch.complex64"),
        (nn.Linear(3, 1, device="meta"), "'weight' has no memory yet"),
        (nn.LazyLinear(3), "'weight' has no shape yet"),
        (nn.LazyBatchNorm1d(affine=False), "'running_mean' has no shape yet"),
    ],
    ids=["frozen", "empty", "none", "complex", "meta", "lazy", "lazy buffers"],
)
def test_what_cannot_be_trained_is_refused_in_words(model: nn.Module, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ModelTensors(model)


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (torch.ones(1).expand(10), r"buffer 'table' has several elements in one place, as expand\(\)"),
        (torch.zeros(3, device="meta"), "buffer 'table' has no memory yet"),
    ],
    ids=["expanded", "meta"],
)
def test_a_buffer_that_no_average_can_be_written_to_is_refused(buffer: Tensor, words: str) -> None:
    model = nn.Linear(4, 1)
    model.register_buffer("table", buffer)
    with pytest.raises(ConfigError, match=words):
        ModelTensors(model)
