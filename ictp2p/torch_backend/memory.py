"""Tensors of any shape and place as flat, dense memory of the host: their own where it is that, else a copy.

Under `torch.inference_mode` tensors are made that only threads in that mode may write to, and the event loop's is not;
so these are taken for the memory that they are (`writable`).

A conjugate is not, nor is a negative view (the imaginary part of one): their memory holds other values than they do.

What is copied in is copied back when the collective has succeeded. Device tensors are staged through pinned memory:
copying out waits for the caller's stream, copying back for what stood in that stream at the call, and a result is on
the device before anybody is told that it is there. So are results whose place holds what is still to be sent (`apart`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ictp2p.collectives.running.flat import writable
from ictp2p.collectives.running.usable import awaited, unreadable, unwritable
from ictp2p.errors import ConfigError


class Memory:
    """The tensors of one call."""

    def __init__(self) -> None:
        self.nbytes = 0
        """Of all of them."""
        self._returns: list[tuple[Tensor, Tensor]] = []
        self._queued: list[torch.cuda.Event] = []
        """One for each result on a device: all that was queued before the call, and may read or fill its place."""

    @property
    def returns(self) -> bool:
        """Whether anything has to be copied back."""
        return bool(self._returns)

    def read(self, tensor: Tensor) -> Tensor:
        """A tensor's elements, flat, only to be read.

        Raises:
            ConfigError: it has none in memory of its own.
        """
        tensor = _dense(tensor)
        self.nbytes += tensor.nbytes
        if tensor.device.type == "cpu":
            return _flat(tensor.resolve_conj().resolve_neg().contiguous())
        held = _held(tensor)
        held.view(tensor.shape).copy_(tensor)
        return held

    def write(self, tensor: Tensor) -> Tensor:
        """Memory for a tensor's elements, flat, of undefined content.

        Raises:
            ConfigError: it has none of its own, or cannot be written.
        """
        tensor = _dense(tensor)
        if objection := unwritable(tensor):
            raise ConfigError(f"a result cannot be written: its tensor {objection}")
        self.nbytes += tensor.nbytes
        if tensor.device.type == "cpu" and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
            return _flat(tensor)
        held = _held(tensor)
        self._returns.append((tensor, held))
        if tensor.is_cuda:
            self._queued.append(torch.cuda.current_stream(tensor.device).record_event())
        return held

    def update(self, tensor: Tensor) -> Tensor:
        """A tensor's elements, flat, to be read and written."""
        held = self.write(tensor)
        if self._returns and self._returns[-1][1] is held:
            held.view(tensor.shape).copy_(tensor.detach())
        return held

    def apart(self, places: Sequence[Tensor], read: Sequence[Tensor], own: Sequence[Tensor]) -> list[Tensor]:
        """The places of results, or copies of those where something lies that is read until the end.

        Args:
            places: flat, from `write`.
            read: what is sent to others, flat.
            own: for the first places, what goes there from here. It may lie exactly there, since it is used first.
        """
        moved = [mine for place, mine in zip(places, own, strict=False) if _span(mine) != _span(place)]
        spans = sorted(_span(part) for part in (*read, *moved) if part.numel())
        starts, ends = [first for first, _ in spans], list(accumulate((last for _, last in spans), max))

        def is_read(place: Tensor) -> bool:
            first, last = _span(place)
            before = bisect_left(starts, last)
            return before > 0 and first < ends[before - 1] and first < last

        return [self._copy(place) if is_read(place) else place for place in places]

    def _copy(self, place: Tensor) -> Tensor:
        held = _held(place)
        self._returns.append((place, held))
        return held

    @torch.inference_mode()  # in which every tensor may be written to, also one that was made in it
    def give_back(self) -> None:
        """Copy back what had to be copied. On a device that is beside the caller's stream, but after what was in it."""
        for event in self._queued:
            event.synchronize()
        for tensor, held in self._returns:
            tensor.copy_(held.view(tensor.shape))


def octets(flat: Tensor) -> Tensor:
    """The bytes of a flat tensor."""
    return writable(flat.view(torch.uint8))


def _flat(tensor: Tensor) -> Tensor:
    """A contiguous tensor as one row, also where a single element of a column keeps the column's stride."""
    return writable(tensor if tensor.stride() == (1,) else tensor.as_strided((tensor.numel(),), (1,)))


def _held(tensor: Tensor) -> Tensor:
    """Memory of the host for as many elements, flat, that the loop's thread may write to, whatever mode we are in."""
    with torch.inference_mode(False):
        return torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=tensor.is_cuda, device="cpu")


def _span(flat: Tensor) -> tuple[int, int]:
    return flat.data_ptr(), flat.data_ptr() + flat.numel() * flat.itemsize


def _dense(tensor: Tensor) -> Tensor:
    tensor = awaited(tensor)
    if objection := unreadable(tensor):
        raise ConfigError(f"a tensor cannot be sent, nor received into: it {objection}")
    return tensor.detach()
