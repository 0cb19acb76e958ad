"""Memory that a training program and its peer's process both see, so that tensors pass by name.

A region is an anonymous file (Linux, memfd_create(2)), mapped by both; its descriptor crosses the socket once. It has
no name in any file system, so nothing is left behind however the processes end.

The training program allocates (`Arena`), since it knows what it has still in use; what it does not use any more is used
again (`reuse`).
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable, Sequence

import torch

from ictp2p.concurrency.threads import Threads
from ictp2p.errors import ConfigError, Exhausted, LocalProtocolError
from ictp2p.handle.messages import TensorRef
from ictp2p.handle.reuse import Reuse

_ALIGN = 64
"""Every tensor that is staged starts at a multiple of this many bytes."""
_KEPT = 2
"""Times the largest of the last allocations that is kept free: a round takes a region to bring and one to get."""

Announce = Callable[[int, int, int], None]
"""Takes the number of a new region, its size, and its descriptor, which is its own to close."""


def check_shared() -> None:
    """See that there is such memory here, by having some.

    Raises:
        ConfigError: there is none.
    """
    try:
        descriptor, memory = _made("ictp2p", mmap.PAGESIZE)
    except (OSError, AttributeError) as error:
        raise ConfigError(
            f"isolation = 'process' is not valid here: two processes cannot share memory (memfd_create): {error}; "
            "use 'thread'"
        ) from error
    memory.close()
    os.close(descriptor)


class Arena(Reuse):
    """Allocates shared memory.

    Args:
        announce: told of each new region.
        dropped: told the number of each that is not used any more.
        threads: what it waits with.
    """

    def __init__(self, announce: Announce, dropped: Callable[[int], None], threads: Threads) -> None:
        super().__init__(threads, _KEPT)
        self._announce = announce
        self._tell_dropped = dropped

    def ref(self, tensor: torch.Tensor) -> TensorRef | None:
        """Where a flat tensor lies, if that is in shared memory."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        if not tensor.numel():
            return TensorRef(0, 0, 0, dtype)
        at, nbytes = tensor.data_ptr(), tensor.numel() * tensor.itemsize
        if not tensor.is_contiguous():
            return None
        with self._lock:
            for region in tuple(self._regions.values()):
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

    @torch.no_grad()
    def copied(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies of flat tensors, in shared memory."""
        copies = self.staged(tensors)
        for copy, tensor in zip(copies, tensors, strict=True):
            copy.copy_(tensor)
        return copies

    def reached(self, tensors: Sequence[torch.Tensor], *, filled: bool) -> list[torch.Tensor]:
        """Flat tensors, or in place of those that do not lie in shared memory others that do.

        Args:
            tensors: what the peer is to reach.
            filled: whether it is to read them; else the others have undefined content.
        """
        strange = [t for t in tensors if self.ref(t) is None]
        others = iter(self.copied(strange) if filled else self.staged(strange))
        return [next(others) if any(t is s for s in strange) else t for t in tensors]

    def placed(self, reached: torch.Tensor) -> TensorRef:
        """Where one of `reached` lies."""
        ref = self.ref(reached)
        assert ref is not None, "it was reached"
        return ref

    def refs(self, reached: Sequence[torch.Tensor]) -> tuple[TensorRef, ...]:
        """Where all of them lie."""
        return tuple(map(self.placed, reached))

    def _map(self, number: int, size: int) -> mmap.mmap:
        try:
            descriptor, memory = _made(f"ictp2p {number}", size)
        except OSError as error:
            raise Exhausted(f"no {size} bytes to share with the peer's process: {error}") from error
        self._announce(number, size, descriptor)
        return memory

    def _dropped(self, number: int) -> None:
        self._tell_dropped(number)


def _made(name: str, size: int) -> tuple[int, mmap.mmap]:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        return descriptor, mmap.mmap(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise


class Regions:
    """The same memory, at the peer."""

    def __init__(self) -> None:
        self._memory: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._memory)

    def map(self, number: int, size: int, descriptor: int) -> None:
        """See a region; its descriptor is closed.

        Raises:
            Exhausted: there is no room for it.
        """
        try:
            held = mmap.mmap(descriptor, size)
        except OSError as error:
            raise Exhausted(f"no {size} bytes to share with the training program: {error}") from error
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
            return torch.empty(0, dtype=dtype, device="cpu")
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
