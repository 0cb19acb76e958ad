"""A benchmark's result is checked as a whole: no chunk may be wrong, missing, or in another's place."""

from __future__ import annotations

import pattern
import pytest
import torch

ELEMENTS = 3 * pattern._PIECE + 1000
CHUNK = 65_536


def summed(row: int = 1) -> torch.Tensor:
    return pattern.total(range(3), ELEMENTS, row)


@pytest.mark.parametrize("row", [1, pattern.BLOCK])
def test_what_is_right_passes(row: int) -> None:
    pattern.verify(summed(row), range(3), "ours", row=row)
    pattern.verify(summed(row) / 3, range(3), "ours", row=row, mean=True)
    pattern.verify(summed(row) * 1.009, range(3), "ours", row=row, slack=0.01)
    pattern.verify(pattern.brought(5, 1, row), [5], "ours", row=row)
    assert summed(row)[[0, row, 2 * row, -1]].tolist() == [6.0, 9.0, 12.0, 6.0 + 3 * ((ELEMENTS - 1) // row % 251)]


@pytest.mark.parametrize("row", [1, pattern.BLOCK])
@pytest.mark.parametrize("at", [CHUNK, ELEMENTS - 2 * CHUNK])
def test_chunks_that_changed_places_are_seen(row: int, at: int) -> None:
    wrong = summed(row)
    wrong[at : at + CHUNK], wrong[at - CHUNK : at] = wrong[at - CHUNK : at].clone(), wrong[at : at + CHUNK].clone()
    with pytest.raises(AssertionError, match=rf"ours: element {at - CHUNK} of {ELEMENTS} is "):
        pattern.verify(wrong, range(3), "ours", row=row, slack=0.01)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("at", [1, ELEMENTS // 2, ELEMENTS - 2])
def test_one_wrong_element_is_seen_wherever_it_is(value: float, at: int) -> None:
    wrong = summed()
    wrong[at] = value
    with pytest.raises(AssertionError, match=f"ours: element {at} of"):
        pattern.verify(wrong, range(3), "ours", slack=0.01)


def test_what_one_rank_too_few_or_too_many_brought_is_seen() -> None:
    for ranks in (range(2), range(4), [0, 1, 1]):
        with pytest.raises(AssertionError, match="element 0 of"):
            pattern.verify(summed(), ranks, "ours", slack=0.01)
