"""Top-k: of every 4096 elements only those of largest magnitude, each with its place; the rest counts as zero.

What is left out must not be lost: `feedback` keeps it and adds it to the next contribution (error feedback; Seide et
al. 2014, Stich et al. 2018). Blocks and k follow SparseLoCo (Sarfi et al. 2025): 64 of 4096.

The largest are chosen within fixed blocks, not in the whole vector: so the size is exact, places take 16 bits, and one
pass suffices. Something that is not finite counts as largest and is sent. A sum of n contributions that were sparse
in the same blocks has at most n k elements left in each: with room for so many, and as float32, sums travel whole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ictp2p.collectives.codecs.codec import check_size
from ictp2p.errors import RemoteProtocolError

BLOCK = 4096
_PLACE_BYTES = 2


class TopK:
    """Writes the `keep` largest of every block: first all their values, then their places, ascending.

    Args:
        keep: elements kept of a block of 4096; of a shorter last one, so many or all.
        dtype: what values are written as; what they lose by it counts as left out.
    """

    block = BLOCK

    def __init__(self, keep: int, dtype: torch.dtype) -> None:
        self._keep = min(keep, BLOCK)
        self._dtype = dtype

    def size(self, elements: int) -> int:
        """Count the bytes of so many elements."""
        return self._kept(elements) * (_PLACE_BYTES + self._dtype.itemsize)

    def encode(self, source: Tensor, wire: Tensor) -> None:
        """Write `source` into `wire`."""
        check_size(self, wire, len(source))
        places, values = self._split(wire, len(source))
        magnitudes = source.abs().numpy()
        whole = len(source) // BLOCK
        written = whole * self._keep
        if whole:
            places[:written] = _largest(magnitudes[: whole * BLOCK].reshape(whole, BLOCK), self._keep).ravel()
        if written < len(places):
            places[written:] = _largest(magnitudes[None, whole * BLOCK :], len(places) - written)[0]
        values.copy_(source[self._indices(places)])

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

    def _kept(self, elements: int) -> int:
        return elements // BLOCK * self._keep + min(elements % BLOCK, self._keep)

    def _split(self, wire: Tensor, elements: int) -> tuple[npt.NDArray[np.uint16], Tensor]:
        head = self._dtype.itemsize * self._kept(elements)
        return wire[head:].numpy().view(np.uint16), wire[:head].view(self._dtype)

    def _read(self, wire: Tensor, elements: int) -> tuple[Tensor, Tensor]:
        check_size(self, wire, elements)
        places, values = self._split(wire, elements)
        indices = self._indices(places)
        if len(places) and (int(indices[-1]) >= elements or int(places.max()) >= BLOCK or not _ascend(indices)):
            raise RemoteProtocolError(f"top-k places are not ascending within blocks of {BLOCK}")
        return indices, values.float()

    def _indices(self, places: npt.NDArray[np.uint16]) -> Tensor:
        """Turn places within blocks into places in the chunk."""
        starts = np.arange(len(places), dtype=np.int64) // self._keep * BLOCK
        return torch.from_numpy(np.add(starts, places, out=starts))


def _largest(magnitudes: npt.NDArray[np.float32], keep: int) -> npt.NDArray[np.intp]:
    """Give the places of the `keep` largest of each row, ascending."""
    width = magnitudes.shape[1]
    if keep == width:
        return np.broadcast_to(np.arange(width), magnitudes.shape)
    return np.sort(np.argpartition(magnitudes, width - keep, axis=1)[:, width - keep :], axis=1)


def _ascend(indices: Tensor) -> bool:
    return bool((indices[1:] > indices[:-1]).all())
