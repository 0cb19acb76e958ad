"""Sums that everybody works out by itself and that come out alike: for what goes in one shot, where no root computes.

The parts are added in the order of participants, each sum and product rounded for itself, which IEEE 754 (sections 4.3
and 5.4.1) makes equal everywhere. It leaves open which NaN comes of two, and processors which one becomes of one in
another format: torch makes 0x7fc0 or 0xffff of it in bfloat16, by the vectors that there are. So all of them become one
where they lie in the end (`settle`, also for what everybody decodes: `coding`). A thread that flushes subnormal numbers
to zero (as `-ffast-math` sets it) does not while it adds. Which of two signed zeros is the larger is left open as well,
and is as equal as NumPy and torch make it on different processors.

`sums.Adder` adds as well, chunk by chunk and in place, at a cost per call that what is small would notice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch

from ictp2p.collectives.running.flat import NATIVE, Flat
from ictp2p.collectives.running.sums import TORCH, Weights
from ictp2p.concurrency.torch_threads import flushes


def add_up(bodies: Sequence[bytes], target: Flat, weights: Weights) -> None:
    """Leave in `target` what the parts of all come to, each as `target.views` has it."""
    add = _add_widened if target.widened else _add_native
    if not flushes():
        add(bodies, target, weights)
        return
    torch.set_flush_denormal(False)
    try:
        add(bodies, target, weights)
    finally:
        torch.set_flush_denormal(True)


def doubtful(values: torch.Tensor) -> bool:
    """Say whether there is a NaN among them, or infinities of both signs: a sum says so in a tenth of the time."""
    return math.isnan(values.sum())


def settle(target: torch.Tensor, source: torch.Tensor) -> None:
    """Give each NaN of `target`, which was copied from `source` or is that, the bits that it has everywhere."""
    target.masked_fill_(torch.isnan(source), torch.nan)


def _add_native(bodies: Sequence[bytes], target: Flat, weights: Weights) -> None:
    dtype, combine = NATIVE[target.dtype], weights.combine
    with np.errstate(over="ignore", invalid="ignore"):  # an infinity, as with torch, and not a warning
        terms = [np.frombuffer(body, dtype) for body in bodies]
        if set(weights.factors) != {1.0}:
            terms = [term * dtype.type(factor) for term, factor in zip(terms, weights.factors, strict=True)]
        total = functools.reduce(combine, terms)
        if weights.divisor != 1:
            total = total / weights.divisor
        nans = dtype.kind == "f" and math.isnan(np.add.reduce(total))  # or two infinities, as in `doubtful`
    if nans:
        total = np.where(np.isnan(total), dtype.type(np.nan), total)
    target.write(0, target.elements, total.data.cast("B"))


def _add_widened(bodies: Sequence[bytes], target: Flat, weights: Weights) -> None:
    terms = [torch.frombuffer(bytearray(body), dtype=target.dtype).float() for body in bodies]
    if set(weights.factors) != {1.0}:
        terms = [term * factor for term, factor in zip(terms, weights.factors, strict=True)]
    total = functools.reduce(TORCH[weights.combine], terms) / weights.divisor
    narrow = total.to(target.dtype)
    if doubtful(total):
        settle(narrow, total)
    target.write(0, target.elements, narrow.view(torch.uint8).numpy().data)
