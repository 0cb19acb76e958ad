"""Cutting tensors into the ranks' parts: nothing is lost, and what does not fit is refused."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import ConfigError
from ictp2p.torch_backend.shapes import cut, expect, fits, split

SIZES = st.integers(1, 5)


@given(shape=st.lists(st.integers(0, 6), max_size=3), rows=st.lists(st.integers(0, 6), max_size=5), size=SIZES)
def test_a_cut_gives_each_rank_its_rows_in_order_or_is_refused(shape: list[int], rows: list[int], size: int) -> None:
    flat, height = torch.arange(math.prod(shape)), shape[0] if shape else 0
    wanted = rows or ([height // size] * size if height % size == 0 else [])
    if not shape or len(wanted) != size or sum(wanted) != height:  # a scalar has no rows
        with pytest.raises(ConfigError):
            cut(flat, torch.Size(shape), rows, size)
        return
    parts = cut(flat, torch.Size(shape), rows, size)
    assert torch.equal(torch.cat(parts), flat)
    assert [len(part) for part in parts] == [count * math.prod(shape[1:]) for count in wanted]


@given(length=st.integers(0, 9), size=SIZES, spare=st.integers(-1, 1))
def test_equal_parts_are_all_of_it(length: int, size: int, spare: int) -> None:
    flat = torch.arange(max(0, length * size + spare))
    if len(flat) != length * size:
        with pytest.raises(
            ConfigError, match=f"call: {len(flat)} elements of torch.int64 are not {size} parts of {length}"
        ):
            split(flat, length, size, "call")
        return
    parts = split(flat, length, size, "call")
    assert [len(part) for part in parts] == [length] * size
    assert torch.equal(torch.cat(parts), flat)


@given(count=st.integers(0, 6), size=SIZES)
def test_there_is_one_for_each_rank(count: int, size: int) -> None:
    if count == size:
        expect(size, count, "tensors")
    else:
        with pytest.raises(ConfigError, match=f"{count} tensors for {size} ranks"):
            expect(size, count, "tensors")


def test_only_as_many_elements_of_one_type_fit() -> None:
    fits(torch.zeros(3), torch.ones(3), "call")
    for other in (torch.ones(4), torch.ones(3, dtype=torch.float64)):
        with pytest.raises(ConfigError, match="call"):
            fits(torch.zeros(3), other, "call")
