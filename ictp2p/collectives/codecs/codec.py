"""What a codec is: a way of writing float32 elements as fewer bytes, with a stated error.

All codecs keep these promises, which the tests hold them to:

- **Sizes are exact.** `size(n)` bytes for n elements, whatever they are, so that a receiver can refuse a chunk by its
  header.
- **Decoding is exact arithmetic.** Every decoded value is a float32 that is reached without rounding (a few bits times
  a bfloat16 scale), so all machines decode the same bytes to the same bits, with fused multiply-add or without.
- **Encoding what was decoded changes nothing**: `decode(encode(decode(encode(x))))` is `decode(encode(x))`.
- **What is not finite stays visible.** A NaN or an infinity never becomes an ordinary number.
- **Any bytes decode** to something, or raise a `RemoteProtocolError`; nothing is read or written out of bounds.

An instance keeps scratch memory and serves one thread at a time. Work is done by torch and NumPy on whole chunks, on
one core, straight between the tensor's memory and the wire's.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ictp2p.errors import RemoteProtocolError


class Codec(Protocol):
    """Writes elements as bytes, and reads them.

    Elements are one-dimensional contiguous float32 tensors on the host; `wire` is a one-dimensional uint8 tensor of
    `size(elements)` bytes.
    """

    @property
    def block(self) -> int:
        """Elements that are encoded together. Chunks should begin at its multiples, or their error is another."""
        ...

    def size(self, elements: int) -> int:
        """Count the bytes of so many elements."""
        ...

    def encode(self, source: Tensor, wire: Tensor) -> None:
        """Write `source` into `wire`."""
        ...

    def check(self, wire: Tensor, elements: int) -> None:
        """Check that `wire` decodes to so many elements.

        Raises:
            RemoteProtocolError: the bytes cannot have been written by `encode`.
        """
        ...

    def decode(self, wire: Tensor, target: Tensor) -> None:
        """Read `wire` into `target`.

        Raises:
            RemoteProtocolError: the bytes cannot have been written by `encode`.
        """
        ...

    def add(self, wire: Tensor, total: Tensor, factor: float = 1.0) -> None:
        """Add `factor` times what `wire` holds to `total`.

        Raises:
            RemoteProtocolError: the bytes cannot have been written by `encode`.
        """
        ...


def check_size(codec: Codec, wire: Tensor, elements: int) -> None:
    """Refuse a `wire` that has not the length of `elements` elements.

    Raises:
        RemoteProtocolError: it is longer or shorter.
    """
    if len(wire) != codec.size(elements):
        raise RemoteProtocolError(f"{len(wire)} bytes for {elements} elements, expected {codec.size(elements)}")
