from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.codecs.topk import BLOCK, TopK
from ictp2p.errors import RemoteProtocolError
from tests.collectives.codecs.vectors import decoded, encoded, same, through, vectors


@given(vectors(), st.integers(1, 200))
@settings(deadline=None)
def test_the_largest_of_each_block_are_kept_and_nothing_else(elements: torch.Tensor, keep: int) -> None:
    result = through(TopK(keep, torch.float32), elements).numpy()
    for start in range(0, len(elements), BLOCK):
        block, kept = elements.numpy()[start : start + BLOCK], result[start : start + BLOCK]
        chosen = kept != 0
        assert (kept[chosen] == block[chosen]).all()
        largest = np.sort(np.abs(block))[::-1][:keep]
        assert np.array_equal(np.sort(np.abs(kept))[::-1][: len(largest)], largest)


@given(st.lists(vectors(), min_size=2, max_size=4))
@settings(deadline=None, max_examples=30)
def test_the_sum_of_sparse_contributions_travels_whole(contributions: list[torch.Tensor]) -> None:
    size = min(map(len, contributions))
    total = torch.zeros(size)
    for elements in contributions:
        TopK(64, torch.bfloat16).add(encoded(TopK(64, torch.bfloat16), elements[:size].clone()), total)
    wire = encoded(TopK(64 * len(contributions), torch.float32), total)
    assert torch.equal(decoded(TopK(64 * len(contributions), torch.float32), wire, size), total)


def test_golden_bytes() -> None:
    values = torch.tensor([0.5, -4.0, 1.0, 3.0, 0.0])
    assert bytes(encoded(TopK(2, torch.bfloat16), values).numpy()).hex() == "80c04040" + "01000300"


@pytest.mark.parametrize("places", [[3, 1], [1, 1], [4, 5], [1, BLOCK]])
def test_places_that_no_encoder_writes_are_refused(places: list[int]) -> None:
    wire = torch.from_numpy(np.array([0, 0, *places], np.uint16).view(np.uint8))
    for action in (TopK(2, torch.bfloat16).decode, TopK(2, torch.bfloat16).add):
        with pytest.raises(RemoteProtocolError, match="ascending"):
            action(wire, torch.zeros(5))


def test_a_place_of_another_block_is_refused() -> None:
    wire = torch.from_numpy(np.array([0, 0, 0, 0, 1, 2, 3, BLOCK + 1], np.uint16).view(np.uint8))
    with pytest.raises(RemoteProtocolError, match="ascending"):
        TopK(2, torch.bfloat16).decode(wire, torch.zeros(2 * BLOCK))


def test_zeros_beyond_the_kept_ones_are_dropped() -> None:
    values = torch.zeros(BLOCK)
    values[[7, 4095]] = torch.tensor([2.0, -1.0])
    assert same(through(TopK(64, torch.bfloat16), values), values)
