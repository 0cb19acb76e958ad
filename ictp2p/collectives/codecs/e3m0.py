"""E3M0 blockwise: four bits per element, a sign and three bits of exponent; an eighth of float32's bytes.

A code stands for 0 or for plus or minus 1, 1/2, .. 1/64 times its block's scale, which is the largest magnitude. An
element errs by at most a third of itself, or 1/128 of the scale if that is more (either half a percent more, for
roundings). Streaming DiLoCo (Douillard et al. 2025) exchanges pseudo-gradients so, accumulated in float32, and lost
nothing by it.

A code with zeros behind it *is* a float16: sign, five bits of exponent of which two are zero, no mantissa. So the
processor's own conversion from float32 does the work, with subnormals for what lies below the least power of two, and
rounding to the nearest code is an addition to the bits. Codes stand two in a byte, the first half of the chunk in the
low bits and the second half in the high ones: so they are packed and unpacked in whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ictp2p.collectives.codecs.blocks import BLOCK, SCALE_BYTES, count, measure, spans
from ictp2p.collectives.codecs.codec import check_size

_TOP = 2.0**-8
"""What code 7 is as a float16 with exponent 7 (bias 15)."""
_HALF = 0x200
"""Half of the mantissa's range: adding it to the bits rounds to the nearest power of two."""
_MANTISSA = 10


class E3M0:
    """Writes elements as four bits each with a scale per block: first all scales, then all codes."""

    block = BLOCK

    def __init__(self) -> None:
        self._floats = torch.empty(0, dtype=torch.float32, device="cpu")
        self._halves = torch.empty(0, dtype=torch.float16, device="cpu")
        self._codes = torch.empty(0, dtype=torch.uint8, device="cpu")
        self._spare = torch.empty(0, dtype=torch.int16, device="cpu")

    def size(self, elements: int) -> int:
        """Count the bytes of so many elements."""
        return SCALE_BYTES * count(elements) + (elements + 1) // 2

    def encode(self, source: Tensor, wire: Tensor) -> None:
        """Write `source` into `wire`."""
        size = len(source)
        check_size(self, wire, size)
        self._reserve(size)
        scales, packed = _split(wire, size)
        for elements, rows, width in spans(size):
            blocks, scratch = source[elements].view(-1, width), self._floats[elements].view(-1, width)
            inverse, poisoned = measure(blocks, 1.0, scales[rows], scratch)
            torch.mul(blocks, inverse.mul_(_TOP), out=scratch)
            if poisoned is not None:
                scratch[poisoned] = 0.0
        halves = self._halves[:size].copy_(self._floats[:size]).view(torch.int16)
        # Shifted, the exponent stands in the lowest three bits and the sign fills the highest three.
        codes = self._codes[:size].copy_(halves.add_(_HALF).bitwise_right_shift_(_MANTISSA))
        lower, upper = codes[: len(packed)], codes[len(packed) :]
        torch.bitwise_and(lower, 0x80, out=packed).bitwise_right_shift_(4)
        packed.bitwise_or_(lower.bitwise_and_(0x07))
        ahead = packed[: len(upper)].bitwise_or_(upper & 0x80)
        ahead.bitwise_or_(upper.bitwise_and_(0x07).mul_(0x10))

    def check(self, wire: Tensor, elements: int) -> None:
        """Check that `wire` decodes to so many elements."""
        check_size(self, wire, elements)

    def decode(self, wire: Tensor, target: Tensor) -> None:
        """Read `wire` into `target`."""
        for elements, width, halves, scale in self._unpacked(wire, len(target), 1.0):
            torch.mul(halves, scale, out=target[elements].view(-1, width))

    def add(self, wire: Tensor, total: Tensor, factor: float = 1.0) -> None:
        """Add `factor` times what `wire` holds to `total`."""
        for elements, width, halves, scale in self._unpacked(wire, len(total), factor):
            total[elements].view(-1, width).addcmul_(halves, scale)

    def _unpacked(self, wire: Tensor, size: int, factor: float) -> Iterator[tuple[slice, int, Tensor, Tensor]]:
        """Give (elements, elements per block, codes as float16, what to multiply them by) of each span."""
        check_size(self, wire, size)
        self._reserve(size)
        scales, packed = _split(wire, size)
        bits = self._halves[:size].view(torch.int16)
        lower, upper = bits[: len(packed)], bits[len(packed) :]
        spare = self._spare[: len(packed)]
        lower.copy_(packed).bitwise_and_(0x07).bitwise_left_shift_(_MANTISSA)
        lower.bitwise_or_(spare.copy_(packed).bitwise_and_(0x08).bitwise_left_shift_(12))
        packed, spare = packed[: len(upper)], spare[: len(upper)]
        upper.copy_(packed).bitwise_and_(0x70).bitwise_left_shift_(_MANTISSA - 4)
        upper.bitwise_or_(spare.copy_(packed).bitwise_and_(0x80).bitwise_left_shift_(8))
        for elements, rows, width in spans(size):
            scale = scales[rows].float().mul_(factor / _TOP)[:, None]
            yield elements, width, self._halves[elements].view(-1, width), scale

    def _reserve(self, size: int) -> None:
        if len(self._floats) < size:
            self._floats = torch.empty(size, dtype=torch.float32, device="cpu")
            self._halves = torch.empty(size, dtype=torch.float16, device="cpu")
            self._codes = torch.empty(size, dtype=torch.uint8, device="cpu")
            self._spare = torch.empty((size + 1) // 2, dtype=torch.int16, device="cpu")


def _split(wire: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    head = SCALE_BYTES * count(elements)
    return wire[:head].view(torch.bfloat16), wire[head:]
