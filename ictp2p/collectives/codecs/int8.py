"""int8 blockwise: a scale per 256 elements and a byte per element; a quarter of float32's bytes.

An element errs by at most 0.75 of its block's scale, which is its largest magnitude over 127: half a step of rounding,
and for the very largest the rounding of the scale. Precedents: QSGD (Alistarh et al. 2017) for quantized gradients,
Dettmers et al. 2022 (8-bit optimizers) for blocks, INTELLECT-1 (2024) for int8 pseudo-gradients at ten billion
parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ictp2p.collectives.codecs.blocks import BLOCK, SCALE_BYTES, count, measure, spans
from ictp2p.collectives.codecs.codec import check_size

_LARGEST = 127.0


class Int8:
    """Writes elements as bytes with a scale per block: first all scales, then all codes."""

    block = BLOCK

    def __init__(self) -> None:
        self._scratch = torch.empty(0, dtype=torch.float32, device="cpu")

    def size(self, elements: int) -> int:
        """Count the bytes of so many elements."""
        return SCALE_BYTES * count(elements) + elements

    def encode(self, source: Tensor, wire: Tensor) -> None:
        """Write `source` into `wire`."""
        check_size(self, wire, len(source))
        scales, codes = _split(wire, len(source))
        if len(self._scratch) < len(source):
            self._scratch = torch.empty(len(source), dtype=torch.float32, device="cpu")
        for elements, rows, width in spans(len(source)):
            blocks, scratch = source[elements].view(-1, width), self._scratch[elements].view(-1, width)
            inverse, poisoned = measure(blocks, _LARGEST, scales[rows], scratch)
            torch.mul(blocks, inverse, out=scratch).round_()
            if poisoned is not None:
                scratch[poisoned] = 0.0
            codes[elements].view(-1, width).copy_(scratch)

    def check(self, wire: Tensor, elements: int) -> None:
        """Check that `wire` decodes to so many elements."""
        check_size(self, wire, elements)

    def decode(self, wire: Tensor, target: Tensor) -> None:
        """Read `wire` into `target`."""
        check_size(self, wire, len(target))
        scales, codes = _split(wire, len(target))
        for elements, rows, width in spans(len(target)):
            into = target[elements].view(-1, width)
            torch.mul(codes[elements].view(-1, width), scales[rows].float()[:, None], out=into)

    def add(self, wire: Tensor, total: Tensor, factor: float = 1.0) -> None:
        """Add `factor` times what `wire` holds to `total`."""
        check_size(self, wire, len(total))
        scales, codes = _split(wire, len(total))
        for elements, rows, width in spans(len(total)):
            scale = scales[rows].float().mul_(factor)[:, None]
            total[elements].view(-1, width).addcmul_(codes[elements].view(-1, width), scale)


def _split(wire: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    head = SCALE_BYTES * count(elements)
    return wire[:head].view(torch.bfloat16), wire[head:].view(torch.int8)
