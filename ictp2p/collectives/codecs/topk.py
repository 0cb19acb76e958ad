"""Top-k: of every 4096 elements only those of largest magnitude, each with its place; the rest counts as zero.

What is left out must not be lost: `feedback` keeps it and adds it to the next contribution (error feedback; Seide et
al. 2014, Stich et al. 2018). Blocks and k follow SparseLoCo (Sarfi et al. 2025): 64 of 4096.

The largest are chosen within fixed blocks, not in the whole vector: so the size is exact, places take 16 bits, and one
pass suffices. Something that is not finite counts as largest and is sent. A sum of n contributions that were sparse
in the same blocks has at most n k elements left in each: with room for so many, and as float32, sums travel whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ictp2p.collectives.codecs.codec import check_size
from ictp2p.errors import RemoteProtocolError

BLOCK = 4096
_PLACE_BYTES = 2
_PLACE_BITS = np.uint64(16)
_PLACE = np.uint64(0xFFFF)


class Sparse(ABC):
    """What codecs that write some elements with their places have in common: how they are read."""

    def check(self, wire: Tensor, elements: int) -> None:
        """Check that `wire` decodes to so many elements.

        Raises:
            RemoteProtocolError: places are not ascending within their block.
        """
        self._read(wire, elements)

    def decode(self, wire: Tensor, target: Tensor) -> None:
        """Read `wire` into `target`.

        Raises:
            RemoteProtocolError: places are not ascending within their block.
        """
        indices, values = self._read(wire, len(target))
        target.zero_()[indices] = values

    def add(self, wire: Tensor, total: Tensor, factor: float = 1.0) -> None:
        """Add `factor` times what `wire` holds to `total`.

        Raises:
            RemoteProtocolError: places are not ascending within their block.
        """
        indices, values = self._read(wire, len(total))
        total[indices] += values.mul_(factor)

    @abstractmethod
    def _read(self, wire: Tensor, elements: int) -> tuple[Tensor, Tensor]:
        """Give the places of what `wire` holds, ascending, and its values in float32; raises as `check`."""


class TopK(Sparse):
    """Writes the `keep` largest of every block: first all their values, then their places, ascending.

    Args:
        keep: elements kept of a block; of a shorter last one, so many or all.
        dtype: what values are written as; what they lose by it counts as left out.
        block: elements among which the largest are sought, at most 65536.
    """

    def __init__(self, keep: int, dtype: torch.dtype, block: int = BLOCK) -> None:
        self.block = block
        self._keep = min(keep, block)
        self._dtype = dtype

    def size(self, elements: int) -> int:
        """Count the bytes of so many elements."""
        return self._kept(elements) * (_PLACE_BYTES + self._dtype.itemsize)

    def encode(self, source: Tensor, wire: Tensor) -> None:
        """Write `source` into `wire`."""
        check_size(self, wire, len(source))
        places, values = self._split(wire, len(source))
        places[:] = largest_of_blocks(source.abs().numpy(), self.block, self._keep)
        values.copy_(source[self._indices(places)])

    def _kept(self, elements: int) -> int:
        return elements // self.block * self._keep + min(elements % self.block, self._keep)

    def _split(self, wire: Tensor, elements: int) -> tuple[npt.NDArray[np.uint16], Tensor]:
        head = self._dtype.itemsize * self._kept(elements)
        return wire[head:].numpy().view(np.uint16), wire[:head].view(self._dtype)

    def _read(self, wire: Tensor, elements: int) -> tuple[Tensor, Tensor]:
        check_size(self, wire, elements)
        places, values = self._split(wire, elements)
        indices = self._indices(places)
        if len(places) and (int(indices[-1]) >= elements or int(places.max()) >= self.block or not ascend(indices)):
            raise RemoteProtocolError(f"top-k places are not ascending within blocks of {self.block}")
        return indices, values.float()

    def _indices(self, places: npt.NDArray[np.uint16]) -> Tensor:
        """Turn places within blocks into places in the chunk."""
        starts = np.arange(len(places), dtype=np.int64) // self._keep * self.block
        return torch.from_numpy(np.add(starts, places, out=starts))


def largest_of_blocks(magnitudes: npt.NDArray[np.float32], block: int, keep: int) -> npt.NDArray[np.intp]:
    """Give the places of the `keep` largest of every block within it, ascending; of a shorter last one, so many or all.

    Args:
        magnitudes: flat, none of them with its sign bit set.
        block: elements per block.
        keep: at most `block`.
    """
    whole = len(magnitudes) // block
    inside, behind = magnitudes[: whole * block].reshape(whole, block), magnitudes[None, whole * block :]
    last = min(keep, behind.shape[1])
    return np.concatenate([_largest(inside, keep).ravel(), _largest(behind, last)[0]])


def _largest(magnitudes: npt.NDArray[np.float32], keep: int) -> npt.NDArray[np.intp]:
    """Give the places of the `keep` largest of each row, ascending; of equals the first.

    Bits of magnitudes are in the order of magnitudes. With the place below them no two keys are equal, so every
    machine chooses the same, whichever way its library partitions.
    """
    width = magnitudes.shape[1]
    if keep == width:
        return np.broadcast_to(np.arange(width), magnitudes.shape)
    keys = magnitudes.view(np.uint32).astype(np.uint64)
    keys <<= _PLACE_BITS
    keys |= np.arange(width - 1, -1, -1, dtype=np.uint64)
    keys.partition(width - keep, axis=1)
    last_first = (keys[:, width - keep :] & _PLACE).astype(np.intp)
    return np.sort(width - 1 - last_first, axis=1)


def ascend(indices: Tensor) -> bool:
    """Whether each is greater than the one before."""
    return bool((indices[1:] > indices[:-1]).all())
