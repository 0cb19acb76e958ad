"""Shared memory: what is written at one end is read at the other, and nothing is used twice at once."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import Exhausted, LocalProtocolError
from ictp2p.handle.memory import Arena, Regions, copy_range
from ictp2p.handle.messages import TensorRef
from tests.handle.still import Still


class Both:
    """Both ends, in one process."""

    def __init__(self) -> None:
        self.regions = Regions()
        self.dropped: list[int] = []
        self.arena = Arena(self.regions.map, self._drop, Still())

    def _drop(self, number: int) -> None:
        self.dropped.append(number)
        self.regions.unmap(number)

    def seen(self, tensor: torch.Tensor) -> torch.Tensor:
        ref = self.arena.ref(tensor)
        assert ref is not None
        return self.regions.tensor(ref)


@given(st.lists(st.sampled_from([0, 1, 7, 4096, 70_001]), min_size=1, max_size=5))
def test_tensors_of_any_type_are_the_same_at_both_ends(sizes: list[int]) -> None:
    both = Both()
    kinds = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float64]
    strange = [torch.zeros(size, dtype=dtype) for size, dtype in zip(sizes, kinds, strict=False)]
    assert all(both.arena.ref(t) is None for t in strange if t.numel())
    staged = both.arena.staged(strange)
    for number, (here, given_) in enumerate(zip(staged, strange, strict=True)):
        assert (here.dtype, here.shape) == (given_.dtype, given_.shape)
        here.fill_(number + 1)
    for here in staged:
        assert torch.equal(both.seen(here), here)
        both.seen(here).zero_()
        assert not here.any()


def test_a_region_is_mapped_at_both_ends_for_as_long_as_it_may_be_used_again() -> None:
    both = Both()
    held = both.arena.empty(10_000)
    assert (len(both.regions), both.dropped) == (1, [])
    both.arena.close()
    assert both.dropped == []
    del held
    both.arena.close()
    assert (len(both.regions), len(both.dropped)) == (0, 1)


def test_what_lies_nowhere_is_refused() -> None:
    both = Both()
    tensor = both.arena.empty(4096)
    ref = both.arena.ref(tensor)
    assert ref is not None
    for wrong in (TensorRef(ref.region, 4000, 200, "uint8"), TensorRef(99, 0, 1, "uint8")):
        with pytest.raises(LocalProtocolError, match="is not in shared memory"):
            both.regions.tensor(wrong)
    assert both.arena.ref(tensor[:100].view(10, 10).t()) is None
    assert both.regions.tensor(TensorRef(0, 0, 0, "int64")).numel() == 0


def test_memory_that_the_peer_cannot_map_is_told_as_exhausted() -> None:
    with pytest.raises(Exhausted, match="no 4096 bytes to share with the training program"):
        Regions().map(1, 4096, os.open(os.devnull, os.O_RDWR))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.data())
def test_a_range_of_several_tensors_is_copied_and_no_more(sizes: list[int], data: st.DataObject) -> None:
    total = sum(sizes)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    sources = list(torch.arange(1, total + 1).split(sizes))
    targets = [torch.zeros_like(source) for source in sources]
    copy_range(sources, targets, start, stop)
    expected = torch.zeros(total, dtype=torch.int64)
    expected[start:stop] = torch.arange(start + 1, stop + 1)
    assert torch.equal(torch.cat(targets), expected)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 4096])), max_size=5), st.booleans())
def test_what_the_peer_is_to_reach_is_copied_only_if_it_lies_elsewhere(
    kinds: list[tuple[bool, int]], filled: bool
) -> None:
    both = Both()
    tensors = [
        both.arena.staged([torch.empty(size)])[0].fill_(number) if shared else torch.full((size,), float(number))
        for number, (shared, size) in enumerate(kinds)
    ]
    reached = both.arena.reached(tensors, filled=filled)
    assert both.arena.refs(reached) == tuple(both.arena.ref(tensor) for tensor in reached)
    for (shared, size), tensor, found in zip(kinds, tensors, reached, strict=True):
        assert (found is tensor) == (shared or not size)
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        if filled or shared:
            assert torch.equal(both.seen(found), tensor)
