"""What ranks bring to a sum that is checked: whole numbers that differ from place to place, and from rank to rank.

Of equal numbers any part could be in any other's place, and a check of the ends sees nothing of the middle. These are
so small that float32 sums them exactly, in whatever order. For codecs that write blocks of elements, which take equal
ones exactly, a number may stand a block's length in a row.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

PERIOD = 251
"""Numbers after which they begin anew: prime, so no chunk, share or block is as long as some periods."""
BLOCK = 256
"""Elements that a codec writes as one (`ictp2p.collectives.codecs.prices`), at most, of those that leave none out."""
_PIECE = PERIOD * BLOCK * 4
"""Elements that are checked at once: some periods, whatever stands in a row."""


def brought(rank: int, elements: int, row: int = 1) -> torch.Tensor:
    """Give what a rank brings, each number `row` times."""
    period = torch.arange(PERIOD, dtype=torch.float32).add_(rank + 1).repeat_interleave(row)
    return period.repeat(-(-elements // len(period)))[:elements]


def total(ranks: Iterable[int], elements: int, row: int = 1) -> torch.Tensor:
    """Give the sum of what some ranks brought."""
    return torch.stack([brought(rank, elements, row) for rank in ranks]).sum(0)


def verify(
    found: torch.Tensor, ranks: Iterable[int], what: str, *, row: int = 1, mean: bool = False, slack: float = 0.0
) -> None:
    """See that every element is the sum, or the mean, of what so many ranks brought.

    Args:
        found: the result.
        ranks: who brought something.
        what: whose result it is.
        row: as it was brought.
        mean: whether it is to be the mean.
        slack: by which share of itself an element may be wrong.

    Raises:
        AssertionError: some element is not; the first one is named.
    """
    these = list(ranks)
    expected = total(these, min(_PIECE, len(found)), row) / (len(these) if mean else 1)
    for number, piece in enumerate(found.split(_PIECE)):
        due = expected[: len(piece)]
        right = torch.isclose(piece, due, rtol=slack, atol=0.0)
        if not right.all():
            at = int((~right).nonzero()[0])
            place = f"element {number * _PIECE + at} of {len(found)}"
            raise AssertionError(f"{what}: {place} is {float(piece[at])!r}, not {float(due[at])!r}")
