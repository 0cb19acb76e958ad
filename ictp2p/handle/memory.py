"""Memory that a training program and its peer's process both see, so that tensors pass by name.

A region is an anonymous file (Linux, memfd_create(2)), mapped by both; its descriptor crosses the socket once. It has
no name in any file system, so nothing is left behind however the processes end.

The training program allocates (`Arena`), since it knows what it has still in use: a region is free again once no tensor
lies in it. Free ones are used again, for touching fresh pages costs more than the copy that they are for; of those no
more is kept than what the largest of the last few rounds took.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from ictp2p.errors import LocalProtocolError
from ictp2p.handle.messages import TensorRef

_ALIGN = 64
"""Every tensor that is staged starts at a multiple of this many bytes."""
_REMEMBERED = 8
"""Allocations that bound what is kept free."""

Announce = Callable[[int, int, int], None]
"""Takes the number of a new region, its size, and its descriptor, which is its own to close."""


@dataclass(slots=True)
class _Region:
    number: int
    size: int
    memory: mmap.mmap
    base: int
    used: bool = field(default=True)


class Arena:
    """Allocates shared memory.

    Args:
        announce: told of each new region.
        dropped: told the number of each that is not used any more.
    """

    def __init__(self, announce: Announce, dropped: Callable[[int], None]) -> None:
        self._announce = announce
        self._dropped = dropped
        self._regions: dict[int, _Region] = {}
        self._numbers = itertools.count(1)
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def empty(self, nbytes: int) -> torch.Tensor:
        """Flat bytes, not initialised."""
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        with self._lock:
            region = self._free(nbytes) or self._make(nbytes)
            region.used = True
            self._recent.append(region.size)
            self._trim()
        view = memoryview(region.memory)[:nbytes]
        # A tensor holds on to the buffer that it was made from, as does each view of it; when the last one goes, so
        # does the buffer. The finalizer may run in any thread, at any moment, so it does no more than say so.
        weakref.finalize(view, _let_go, region)
        return torch.frombuffer(view, dtype=torch.uint8)

    def ref(self, tensor: torch.Tensor) -> TensorRef | None:
        """Where a flat tensor lies, if that is in shared memory."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        if not tensor.numel():
            return TensorRef(0, 0, 0, dtype)
        at, nbytes = tensor.data_ptr(), tensor.numel() * tensor.itemsize
        if not tensor.is_contiguous():
            return None
        with self._lock:
            for region in self._regions.values():
                if region.base <= at and at + nbytes <= region.base + region.size:
                    return TensorRef(region.number, at - region.base, tensor.numel(), dtype)
        return None

    def staged(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Room for flat tensors like these, one behind the other."""
        sizes = [t.numel() * t.itemsize for t in tensors]
        starts = list(itertools.accumulate((-(-size // _ALIGN) * _ALIGN for size in sizes), initial=0))
        held = self.empty(starts[-1])
        return [
            held[start : start + size].view(t.dtype) for t, start, size in zip(tensors, starts, sizes, strict=False)
        ]

    def _free(self, nbytes: int) -> _Region | None:
        """The smallest region that is free and large enough, and not much too large."""
        fit = [r for r in self._regions.values() if not r.used and nbytes <= r.size <= 2 * nbytes + mmap.PAGESIZE]
        return min(fit, key=lambda region: region.size, default=None)

    def _make(self, nbytes: int) -> _Region:
        number, size = next(self._numbers), -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        descriptor = os.memfd_create(f"ictp2p {number}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            memory = mmap.mmap(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        region = _Region(number, size, memory, torch.frombuffer(memory, dtype=torch.uint8).data_ptr())
        self._regions[number] = region
        self._announce(number, size, descriptor)
        return region

    def _trim(self) -> None:
        """Give back what the last few rounds did not need."""
        free = sorted((r for r in self._regions.values() if not r.used), key=lambda region: region.number)
        spare = sum(region.size for region in free) - 2 * max(self._recent)
        for region in free:
            if spare <= 0:
                return
            spare -= region.size
            del self._regions[region.number]
            self._dropped(region.number)


class Regions:
    """The same memory, at the peer."""

    def __init__(self) -> None:
        self._memory: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._memory)

    def map(self, number: int, size: int, descriptor: int) -> None:
        """See a region; its descriptor is closed."""
        try:
            held = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._memory[number] = torch.frombuffer(held, dtype=torch.uint8)

    def unmap(self, number: int) -> None:
        """Forget it, once no tensor lies in it."""
        self._memory.pop(number, None)

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        """A tensor that lies there.

        Raises:
            LocalProtocolError: it lies nowhere.
        """
        dtype: torch.dtype = getattr(torch, ref.dtype)
        if not ref.elements:
            return torch.empty(0, dtype=dtype)
        memory, end = self._memory.get(ref.region), ref.offset + ref.elements * dtype.itemsize
        if memory is None or end > len(memory):
            raise LocalProtocolError(f"{ref} is not in shared memory")
        return memory[ref.offset : end].view(dtype)


def copy_range(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], start: int, stop: int) -> None:
    """Copy the elements `[start, stop)` of lists of flat tensors, seen as one behind the other."""
    at = 0
    for source, target in zip(sources, targets, strict=True):
        low, high = max(start - at, 0), min(stop - at, source.numel())
        if low < high:
            target[low:high].copy_(source[low:high])
        at += source.numel()


def _let_go(region: _Region) -> None:
    region.used = False
