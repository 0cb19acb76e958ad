from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.errors import ConfigError, StateError
from ictp2p.sync.state.pack import allocate, octets, pack, unpack
from tests.garbage import LARGE, uncollected

plain = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5)
trees = st.recursive(
    plain | st.integers(0, 4).map(lambda n: torch.arange(n)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=10,
)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return type(other) is dict and list(one) == list(other) and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


@given(trees)
@settings(max_examples=100)
def test_a_tree_survives(tree: Any) -> None:
    skeleton, tensors = pack(tree)
    copies = allocate(skeleton, 1 << 20)
    for copy, tensor in zip(copies, tensors, strict=True):
        octets(copy)[:] = octets(tensor)
    assert equal(tree, unpack(skeleton, copies))


def test_an_optimizer_survives_and_goes_on_alike() -> None:
    one, other = (torch.nn.Linear(3, 2) for _ in range(2))
    other.load_state_dict(one.state_dict())
    first, second = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (one, other))
    one(torch.ones(3)).sum().backward()
    first.step()
    other.load_state_dict(one.state_dict())
    skeleton, tensors = pack(first.state_dict())
    second.load_state_dict(unpack(skeleton, [t.clone() for t in tensors]))
    for model, optimizer in ((one, first), (other, second)):
        model.zero_grad()
        model(torch.ones(3)).sum().backward()
        optimizer.step()
    assert torch.equal(one.weight, other.weight)


@given(st.integers(-(2**63), 2**63 - 1), st.floats(width=32, allow_nan=False), st.booleans(), st.text("abc"))
def test_scalars_of_numpy_are_what_they_hold(whole: int, real: float, flag: bool, word: str) -> None:
    tree = {np.int64(whole): [np.float64(real), np.float32(real), np.int64(whole), np.bool_(flag), np.str_(word)]}
    assert equal(unpack(*pack(tree)), {whole: [real, real, whole, flag, word]})


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.uint16, torch.float8_e4m3fn])
def test_tensors_that_no_global_state_holds_can_be_a_workers(dtype: torch.dtype) -> None:
    skeleton, (tensor,) = pack(torch.tensor([1.0, -2.0, 3.5]).abs().to(dtype))
    (copy,) = allocate(skeleton, 48)
    octets(copy)[:] = octets(tensor)
    assert torch.equal(copy.view(torch.uint8), tensor.view(torch.uint8))


def test_what_is_marked_as_a_conjugate_or_as_negative_arrives_as_what_it_is() -> None:
    """Regression: angles as a conjugate had no bytes, and nothing said so before a newcomer came."""
    angles = torch.tensor([1 + 2j, 3 - 1j])
    tree = [angles.conj(), angles.conj().imag]
    assert (tree[0].is_conj(), tree[1].is_neg()) == (True, True)
    skeleton, tensors = pack(tree)
    copies = allocate(skeleton, 64)
    for copy, tensor in zip(copies, tensors, strict=True):
        octets(copy)[:] = octets(tensor)
    assert equal(tree, unpack(skeleton, copies))


@pytest.mark.parametrize(
    ("tree", "where"),
    [
        ({"a": [1, object()]}, r"state\['a'\]\[1\] is a object"),
        ({(1, 2): 3}, "key of type tuple"),
        ([np.longdouble(1)], r"state\[0\] is a longdouble"),
        ([np.ones(1)], r"state\[0\] is a ndarray"),
        ([2**64], r"state\[0\] is a whole number of more than 64 bits, 18446744073709551616"),
        ([torch.ones(2).to_sparse()], r"state\[0\] is a tensor of torch.float32, torch.sparse_coo"),
    ],
)
def test_what_is_not_plain_is_named(tree: Any, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        pack(tree)


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_garbage_is_a_typed_error(data: bytes) -> None:
    with contextlib.suppress(StateError):
        allocate(data, 1 << 20)


@pytest.mark.parametrize(
    "skeleton",
    [
        ["t", "float32", [1 << 40]],
        ["t", "object", [1]],
        ["t", "float32", [-1]],
        ["t", "float32", ["x"]],
        ["d", [["a"]]],
        ["d", 5],
        ["l", [["q"]]],
        7,
    ],
)
def test_a_skeleton_is_checked_before_anything_is_allocated(skeleton: Any) -> None:
    with pytest.raises(StateError):
        allocate(msgspec.msgpack.encode(skeleton), 1 << 20)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_column_has_the_bytes_of_its_elements(rows: int) -> None:
    column = torch.arange(3.0 * rows).view(rows, 3)[:, 1]
    assert bytes(octets(column)) == column.numpy().tobytes()


def test_what_is_unpacked_leaves_nothing_to_the_garbage_collector() -> None:
    """Regression: a function that called itself was a cycle with all tensors of a state, until the collector came."""
    with uncollected() as left:
        assert unpack(*pack({"weights": [torch.ones(LARGE)]})).keys() == {"weights"}
    assert left == []
