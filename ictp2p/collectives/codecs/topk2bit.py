"""Top-k in two bits: of every 4096 elements the 64 of largest magnitude, each as a sign and one of two levels.

SparseLoCo (Sarfi et al., 2025) sends what it keeps in two bits and lost nothing by it under error feedback. What is
kept of a block is split in the middle between its least and its largest magnitude; each half becomes its mean, a
bfloat16. A place in a block takes twelve bits. That is 116 bytes for 4096 elements, 1/141 of float32's.

What was decoded has the same levels and the same places when it is encoded again: a mean of equal numbers of eight bits
is exact. Hence what error feedback made of a contribution travels as it is. This needs all of a block's levels to come
from one encoding, so the blocks and their number of kept elements are fixed, here and on the wire.

A block with an element that is not finite has no levels, and everything that is kept of it decodes to NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ictp2p.collectives.codecs.codec import check_size
from ictp2p.collectives.codecs.topk import BLOCK, Sparse, ascend, largest_of_blocks
from ictp2p.errors import RemoteProtocolError

KEPT = 64
"""Elements that are kept of a block."""
_LEVELS = 2
_LEVEL_BYTES = 2
_CODES = 4
"""Codes in a byte, and what a code may mean: minus or plus a level."""
_UPPER, _MINUS = 1, 2
_PLACE_BITS = 12

Array = npt.NDArray[Any]


class TopK2Bit(Sparse):
    """Writes the `KEPT` largest of every block: first all levels, then all codes, then all places, ascending."""

    block = BLOCK

    def size(self, elements: int) -> int:
        """Count the bytes of so many elements."""
        return sum(_lengths(elements))

    def encode(self, source: Tensor, wire: Tensor) -> None:
        """Write `source` into `wire`."""
        check_size(self, wire, len(source))
        levels, codes, places = _split(wire, len(source))
        at = largest_of_blocks(source.abs().numpy(), BLOCK, KEPT)
        values = source.numpy()[_starts(len(at)) + at]
        marks = np.zeros(len(codes) * _CODES, np.uint8)
        for kept, rows, width in _spans(len(values)):
            with np.errstate(invalid="ignore"):  # a signalling NaN is told by its level, as a quiet one is
                magnitudes = np.abs(values[kept].reshape(-1, width)).astype(np.float64)
            upper, found = _levels_of(magnitudes)
            levels[rows] = torch.from_numpy(found)
            marks[kept] = upper.ravel() * np.uint8(_UPPER)
        marks[: len(values)] |= np.signbit(values) * np.uint8(_MINUS)
        codes[:] = marks[::4] | marks[1::4] << 2 | marks[2::4] << 4 | marks[3::4] << 6
        places[:] = _pack(at)

    def _read(self, wire: Tensor, elements: int) -> tuple[Tensor, Tensor]:
        check_size(self, wire, elements)
        levels, codes, places = _split(wire, elements)
        count = _kept(elements)
        rows = np.arange(count, dtype=np.int64) // KEPT
        indices = torch.from_numpy(rows * BLOCK + _unpack(places, count))
        if count and (int(indices[-1]) >= elements or not ascend(indices)):
            raise RemoteProtocolError(f"top-k places are not ascending within blocks of {BLOCK}")
        marks = np.empty((len(codes), _CODES), np.uint8)
        for place in range(_CODES):
            marks[:, place] = codes >> 2 * place & 3
        plus = levels.float().numpy()
        meanings = np.concatenate([plus, -plus], 1).ravel()
        return indices, torch.from_numpy(meanings[rows * _CODES + marks.ravel()[:count]])


def _levels_of(magnitudes: Array) -> tuple[Array, Array]:
    """Which elements of each row are in its upper half, and (rows, 2) the halves' means as float32.

    Sums are taken column by column, so that all machines get the same: who accumulates may not take pairs first.
    """
    middle = (magnitudes.min(1) + magnitudes.max(1)) / 2.0
    upper = magnitudes > middle[:, None]
    halves = np.stack([np.where(upper, 0.0, magnitudes).T, np.where(upper, magnitudes, 0.0).T], 2)
    sums = np.add.accumulate(halves, axis=0)[-1]
    above = upper.sum(1)
    counts = np.stack([magnitudes.shape[1] - above, above], 1)
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    means[above == 0, 1] = means[above == 0, 0]
    levels = torch.from_numpy(means).float().bfloat16().float().numpy()
    levels[~np.isfinite(levels).all(1) | ~np.isfinite(magnitudes).all(1)] = np.nan
    return upper, levels


def _kept(elements: int) -> int:
    return elements // BLOCK * KEPT + min(elements % BLOCK, KEPT)


def _lengths(elements: int) -> tuple[int, int, int]:
    """Bytes of the levels, of the codes, and of the places."""
    kept, rows = _kept(elements), -(-elements // BLOCK)
    return rows * _LEVELS * _LEVEL_BYTES, -(-kept // _CODES), -(-kept * _PLACE_BITS // 8)


def _split(wire: Tensor, elements: int) -> tuple[Tensor, Array, Array]:
    levels, codes, _ = _lengths(elements)
    behind = wire[levels:].numpy()
    return wire[:levels].view(torch.bfloat16).view(-1, _LEVELS), behind[:codes], behind[codes:]


def _spans(kept: int) -> list[tuple[slice, slice, int]]:
    """(kept elements, rows, kept elements per row) of the whole blocks, and of a last one that keeps fewer."""
    whole = kept // KEPT
    spans = [
        (slice(0, whole * KEPT), slice(0, whole), KEPT),
        (slice(whole * KEPT, kept), slice(whole, None), kept % KEPT),
    ]
    return [span for span in spans if span[0].stop > span[0].start]


def _starts(kept: int) -> Array:
    return np.arange(kept, dtype=np.int64) // KEPT * BLOCK


def _pack(places: Array) -> Array:
    """Two places in three bytes."""
    pairs = np.zeros((len(places) + 1) // 2 * 2, np.uint16)
    pairs[: len(places)] = places
    first, second = pairs[::2], pairs[1::2]
    packed = np.stack([first & 0xFF, first >> 8 | (second & 0x0F) << 4, second >> 4], 1).astype(np.uint8).ravel()
    return packed[: -(-len(places) * _PLACE_BITS // 8)]


def _unpack(packed: Array, count: int) -> Array:
    padded = np.zeros(-(-count // 2) * 3, np.uint16)
    padded[: len(packed)] = packed
    low, middle, high = padded[::3], padded[1::3], padded[2::3]
    return np.stack([low | (middle & 0x0F) << 8, middle >> 4 | high << 4], 1).ravel()[:count].astype(np.int64)
