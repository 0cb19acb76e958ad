"""Which worker's tensors of which call are in a result: each call of each worker has a place of its own in them.

A one stands there and zeros everywhere else. So what a sum is of can be read off it, whatever codec it went through,
and so can whose tensors were copied.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

CALLS = 8
"""Calls of a worker's program, each with its number."""
_LIVES = 8
"""After so many lives of a worker their marks begin anew."""
_CELLS = CALLS * _LIVES
ROWS = 12
"""Times that the marks are in a tensor: so up to four clusters that get a part of it have all of them."""


class Mark(NamedTuple):
    """One call of one worker."""

    place: int
    """The worker's, among all."""
    life: int
    number: int


def marks(mark: Mark, places: int) -> torch.Tensor:
    """The tensor that a worker brings to a call."""
    tensor = torch.zeros(places * _CELLS, dtype=torch.int64)
    tensor[mark.place * _CELLS + mark.life % _LIVES * CALLS + mark.number] = 1
    return tensor.repeat(ROWS)


def found(tensor: torch.Tensor, places: int) -> frozenset[Mark]:
    """Whose calls are in a tensor, each of them once, and nobody with two of them."""
    rows = tensor.reshape(-1, places * _CELLS).to(torch.float64)
    cells = rows[0]
    assert bool((rows == cells).all()), "of the same in all of its parts"
    inside = cells.nonzero().flatten().tolist()
    assert bool((cells[inside] == 1).all()), "nobody's twice, and nothing but marks"
    held = frozenset(Mark(at // _CELLS, at % _CELLS // CALLS, at % CALLS) for at in inside)
    assert len({mark.place for mark in held}) == len(held), "one call of a worker alone"
    return held
