"""Blocks of elements that share a scale, as int8 and E3M0 have them.

The scale is the block's largest magnitude over the largest code, rounded to bfloat16. Eight bits of scale times a few
bits of code are exact in float32, and the largest element always gets the largest code; hence decoding is the same on
every machine, and encoding the decoded block again finds the same scale and the same codes.

A block with an element that is not finite, or of `HUGE` magnitude, has the scale NaN and so decodes to NaN throughout:
to hide one diverged element among 256 would be worse. One whose scale is below `TINY` is zero.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 256
"""Elements per scale: 0.8 % of an int8's bytes. Smaller blocks follow the elements closer and cost more scales."""
SCALE_BYTES = 2
TINY = 2.0**-100
HUGE = 2.0**110
"""Bounds of a scale. Within them no product of scale and code, and no inverse, overflows or becomes subnormal."""


def count(elements: int) -> int:
    """Count the blocks of so many elements; the last may be shorter."""
    return -(-elements // BLOCK)


def spans(elements: int) -> Iterator[tuple[slice, slice, int]]:
    """Give the (elements, blocks, elements per block) of the whole blocks, and those of a shorter last one."""
    whole = elements // BLOCK
    if whole:
        yield slice(0, whole * BLOCK), slice(0, whole), BLOCK
    if elements % BLOCK:
        yield slice(whole * BLOCK, elements), slice(whole, whole + 1), elements % BLOCK


def measure(blocks: Tensor, largest: float, scales: Tensor, scratch: Tensor) -> tuple[Tensor, Tensor | None]:
    """Write the scale of each row of `blocks` into `scales`.

    Args:
        blocks: (rows, elements per block) float32.
        largest: magnitude of the largest code.
        scales: (rows,) bfloat16, written.
        scratch: like `blocks`, overwritten.

    Returns:
        What to multiply each row by, (rows, 1), zero for rows that are zero or not finite; and which rows are not
        finite, or None if all are.
    """
    exact = torch.amax(torch.abs(blocks, out=scratch), 1).mul_(1.0 / largest)
    scale = exact.bfloat16().float()
    scale[scale < TINY] = 0.0
    poisoned = ~(scale <= HUGE)
    inverse = torch.where(scale > 0, 1.0 / scale, 0.0)
    if not poisoned.any():
        scales.copy_(scale)
        return inverse[:, None], None
    scales.copy_(scale.masked_fill_(poisoned, torch.nan))
    return inverse.masked_fill_(poisoned, 0.0)[:, None], poisoned
