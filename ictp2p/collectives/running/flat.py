"""A list of tensors seen as one flat vector. Nothing is flattened by copying.

All of them are seen through one *window*, the octets from the first byte of the first tensor in memory to the last byte
of the last one. What lies between them is somebody else's, or nobody's, and never touched. So a tensor is one number,
and a range of it a slice. Of the 0.75 ms that a list of 300 tensors took to be seen as one, 0.47 were an array each.

Tensors of which each begins in memory where the one before it ends are one *run*, as if they were one tensor, for each
piece that is received, copied or added costs calls of its own. Such are the views of one buffer: the results of a call
of the mesh, the gradients in a bucket of DDP, the parameters of a model that was loaded from a file.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, compress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from ictp2p.errors import ConfigError

Array: TypeAlias = npt.NDArray[Any]

NATIVE: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
}
"""What NumPy has types for."""
_numel, _address, _dtype = torch.Tensor.numel, torch.Tensor.data_ptr, operator.attrgetter("dtype")
_BITS = np.dtype(np.int16)
_WIDENED = {torch.bfloat16: _BITS, torch.float16: _BITS}
"""What is summed as float32 (`sums`), and what NumPy sees of it."""


def reducible(dtype: torch.dtype) -> bool:
    """Whether tensors of this type can be reduced."""
    return dtype in NATIVE or dtype in _WIDENED


class Flat:
    """Tensors (or NumPy arrays) of one type, addressed by element as if they stood one behind the other.

    Raises:
        ConfigError: they differ in type, lie on a device, are not contiguous, or cannot be reduced.
    """

    def __init__(self, tensors: Sequence[torch.Tensor | Array], name: str = "tensors") -> None:
        given = [_checked(tensor, name, number) for number, tensor in enumerate(tensors)]
        dtypes = set(map(_dtype, given))
        if len(dtypes) > 1:
            raise ConfigError(f"{name} mix the types {', '.join(sorted(map(str, dtypes)))}: reduce them separately")
        self.dtype = given[0].dtype if given else torch.float32
        self.widened = self.dtype in _WIDENED
        self.itemsize = self.dtype.itemsize
        self.partial_itemsize = 4 if self.widened else self.itemsize
        """Bytes per element of a partial sum on the wire."""
        lengths = list(map(_numel, given))
        if 0 in lengths:
            given, lengths = list(filter(_numel, given)), list(filter(None, lengths))
        self._given = given
        self._cuts = cuts = list(accumulate(lengths))
        """Where tensors end, whether or not the next one follows in memory."""
        self.elements = cuts[-1] if cuts else 0
        self._starts = list(map(_address, given))
        """Addresses, as the next two."""
        self._stops = [at + length * self.itemsize for at, length in zip(self._starts, lengths, strict=True)]
        self._low, high = min(self._starts, default=0), max(self._stops, default=0)
        self._window = np.asarray(_Lent(given, self._low, high - self._low)).data if given else memoryview(b"")
        self._join([at - self._low - end * self.itemsize for at, end in zip(self._stops, cuts, strict=True)])

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor | Array] | Flat, name: str = "tensors") -> Flat:
        """Make one of tensors, unless they are seen as one already."""
        return tensors if isinstance(tensors, Flat) else cls(tensors, name)

    @cached_property
    def tensors(self) -> list[torch.Tensor]:
        """Those that have elements, one-dimensional; not made before they are wanted, for there may be thousands."""
        return [tensor.view(-1) for tensor in self._given]

    def same_cuts(self, other: Flat) -> bool:
        """Say whether both have tensors of equal lengths."""
        return self._cuts == other._cuts

    def views(self, start: int, stop: int) -> list[memoryview]:
        """Give the bytes of `[start, stop)` in order, without copying."""
        window, size = self._window, self.itemsize
        return [window[at : at + length * size] for at, length in self._places(start, stop)]

    def together(self, start: int, stop: int) -> bool:
        """Say whether `[start, stop)` lies in one run."""
        number = bisect_right(self._ends, start)
        return number < len(self._ends) and stop <= self._ends[number]

    def arrays(self, start: int, stop: int) -> list[Array]:
        """Give the elements of `[start, stop)` as one-dimensional arrays (16-bit floats as their bits)."""
        window, dtype = self._window, _WIDENED.get(self.dtype) or NATIVE[self.dtype]
        return [np.frombuffer(window, dtype, length, at) for at, length in self._places(start, stop)]

    def ranges(self, start: int, stop: int) -> list[torch.Tensor]:
        """Give the elements of `[start, stop)` as one-dimensional tensors that share memory with ours."""
        window, dtype = self._window, self.dtype
        places = self._places(start, stop)
        return [torch.frombuffer(window, dtype=dtype, count=length, offset=at) for at, length in places]

    def write(self, start: int, stop: int, body: memoryview) -> None:
        """Copy `body` over the bytes of `[start, stop)`."""
        window, size, offset = self._window, self.itemsize, 0
        for at, length in self._places(start, stop):
            length *= size
            window[at : at + length] = body[offset : offset + length]
            offset += length

    @classmethod
    def placed(cls, pieces: Sequence[tuple[int, torch.Tensor]], like: Flat, name: str = "tensors") -> Flat:
        """Make a vector as long as `like` of which only some ranges exist: (first element, tensor), ascending.

        Raises:
            ConfigError: as the class; or the pieces differ in type from `like`, overlap, or reach beyond it.
        """
        flat = cls([tensor for _, tensor in pieces], name)
        if flat._given and flat.dtype != like.dtype:
            raise ConfigError(f"{name} are {flat.dtype}, not {like.dtype}")
        flat.dtype, flat.widened, flat.itemsize = like.dtype, like.widened, like.itemsize
        flat.partial_itemsize, flat.elements = like.partial_itemsize, like.elements
        starts = [start for start, tensor in pieces if tensor.numel()]
        flat._spread(starts, name)
        return flat

    def _spread(self, starts: Sequence[int], name: str) -> None:
        """Let our tensors begin at these elements, with holes between them: tensors of no memory and no elements."""
        nothing, nowhere = torch.empty(0, dtype=self.dtype, device="cpu"), len(self._window)
        parts, end = list[tuple[torch.Tensor, int, int]](), 0
        for start, tensor, at in zip(starts, self.tensors, self._starts, strict=True):
            if start < end:
                raise ConfigError(f"{name} overlap at element {start}")
            if start > end:
                parts.append((nothing, nowhere, start))
            end = start + len(tensor)
            parts.append((tensor, at - self._low - start * self.itemsize, end))
        if end > self.elements:
            raise ConfigError(f"{name} reach to element {end} of {self.elements}")
        if end < self.elements:
            parts.append((nothing, nowhere, self.elements))
        self.tensors, self._cuts = [tensor for tensor, _, _ in parts], [end for _, _, end in parts]
        self._join([origin for _, origin, _ in parts])

    def _join(self, origins: Sequence[int]) -> None:
        """Find the runs. A tensor's origin is where in the window our first element would be if all lay as it does."""
        last = [*map(operator.ne, origins, origins[1:]), True]
        self._origins, self._ends = list(compress(origins, last)), list(compress(self._cuts, last))
        """Of each run."""

    def tangled(self) -> bool:
        """Say whether any memory belongs to two of our tensors."""
        starts, stops = sorted(self._starts), sorted(self._stops)
        return any(map(operator.gt, stops, starts[1:]))  # where one begins, all but one of those before have ended

    def overlaps(self, other: Flat) -> bool:
        """Say whether any memory belongs to both."""
        if other is self:
            return self.elements > 0
        if max(self._stops, default=0) <= other._low or max(other._stops, default=0) <= self._low:
            return False
        starts, stops = np.array(self._starts + other._starts), np.array(self._stops + other._stops)
        order = np.argsort(starts)
        ours = order < len(self._starts)
        starts, stops = starts[order], stops[order]
        reached, reached_by_other = (np.maximum.accumulate(np.where(side, stops, 0)) for side in (ours, ~ours))
        return bool(np.any(starts < np.where(ours, reached_by_other, reached)))

    def _places(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Say where in the window `[start, stop)` lies: run by run the first byte, and how many elements."""
        ends, origins, size = self._ends, self._origins, self.itemsize
        number, places = bisect_right(ends, start), []
        while start < stop:
            end = min(stop, ends[number])
            places.append((origins[number] + start * size, end - start))
            start, number = end, number + 1
        return places


def _checked(tensor: torch.Tensor | Array, name: str, number: int) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        tensor = torch.from_numpy(tensor)
    elif tensor.requires_grad:
        tensor = tensor.detach()
    if not reducible(tensor.dtype):
        raise ConfigError(f"{name}[{number}] has type {tensor.dtype}, which cannot be reduced")
    if not tensor.is_cpu:
        where = f"{name}[{number}] lies on {tensor.device}"
        raise ConfigError(f"{where}: between clusters tensors travel from the host's memory")
    if not tensor.is_contiguous() or tensor.is_neg():
        raise ConfigError(f"{name}[{number}] of shape {tuple(tensor.shape)} is not contiguous, or a negative view")
    return writable(tensor)


class _Lent:
    """A piece of memory, in which these tensors lie, for NumPy, as octets, while the array lives.

    `Tensor.numpy` would do, but for good: no storage that it has seen can be resized, as FSDP1 does with what it frees.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], start: int, size: int) -> None:
        self._tensors = tensors
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (start, False)}


def writable(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor that any thread may write to, on the same memory; it must be contiguous, and on the host.

    A tensor that was made under `torch.inference_mode` is refused to whoever is not in that mode, which is of a thread.
    """
    if not (tensor.is_inference() and tensor.numel()):
        return tensor
    with torch.inference_mode(False):
        octets = torch.from_numpy(np.asarray(_Lent([tensor], tensor.data_ptr(), tensor.numel() * tensor.itemsize)))
        return octets.view(tensor.dtype).view(tensor.shape)
