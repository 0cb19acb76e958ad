from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import ConfigError
from ictp2p.sync.model.fragments import fragments


class Transformer(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(4, 2)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2)) for _ in range(layers)
        )
        self.head = torch.nn.Linear(2, 4)
        self.scale = torch.nn.Parameter(torch.ones(()))


def names_of(model: torch.nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


@given(st.integers(2, 9), st.data())
def test_every_tensor_is_in_one_fragment_and_no_layer_is_cut(layers: int, data: st.DataObject) -> None:
    model = Transformer(layers)
    names = names_of(model)
    count = data.draw(st.integers(1, layers + 3))
    found = fragments(model, names, count)
    assert len(found) == count
    assert all(found)
    assert sorted(name for part in found for name in part) == sorted(names)
    for part in found:
        assert list(part) == [name for name in names if name in part], "in the order of the model"
    for layer in range(layers):
        held = [number for number, part in enumerate(found) if any(n.startswith(f"blocks.{layer}.") for n in part)]
        assert len(held) == 1


def test_layers_are_dealt_out_in_turn() -> None:
    model = Transformer(6)
    layers = [n for n in names_of(model) if n.startswith("blocks.")]
    parts = fragments(model, layers, 3)
    held = [sorted({int(name.split(".")[1]) for name in part}) for part in parts]
    assert held == [[0, 3], [1, 4], [2, 5]]


def test_a_model_without_layers_is_divided_by_its_modules() -> None:
    model = torch.nn.Module()
    model.one, model.two = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    assert fragments(model, names_of(model), 2) == (("one.weight", "one.bias"), ("two.weight", "two.bias"))


def test_a_plain_stack_is_divided_by_its_layers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    assert fragments(model, names_of(model), 2) == (("0.weight", "0.bias"), ("1.weight", "1.bias"))


def test_fragments_by_name_and_the_rest_in_the_last() -> None:
    model = Transformer(2)
    found = fragments(model, names_of(model), [["embed", "blocks.1"], ["blocks.0"], ["scale"]])
    assert set(found[0]) == {n for n in names_of(model) if n.startswith(("embed.", "blocks.1."))}
    assert set(found[2]) == {"scale", "head.weight", "head.bias"}


@pytest.mark.parametrize(
    ("wanted", "match"),
    [
        (0, "fragments 0 is not from 1 to 5"),
        (6, "fragments 6 is not from 1 to 5, the layers that this model has"),
        ([], r"fragments \[\] name no module"),
        ([["embed"], ["embed.weight"]], "'embed.weight' is in fragment 0 already"),
        ([["emb"], ["head"]], "'emb' of fragment 0 names nothing"),
        ([[], ["head"]], "fragment 0 is empty"),
    ],
)
def test_what_cannot_be_is_refused(wanted: int | Sequence[Sequence[str]], match: str) -> None:
    model = Transformer(2)
    with pytest.raises(ConfigError, match=match):
        fragments(model, names_of(model), wanted)
