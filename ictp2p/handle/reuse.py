"""Memory for tensors that is used again: touching fresh pages costs five times what writing to them does.

The result of a call is as large as the caller's tensors, and the one before it is kept for whoever may have missed it
(`calls.answers`), so calls of one size take turns in two regions. A region is free again once no tensor lies in it.
Of what is free no more is kept than a few times the largest of the last allocations, and nothing once nobody has asked
for any for a while: a program that averages once an hour should not pay for it in between.
"""

from __future__ import annotations

import itertools
import mmap
import threading
import weakref
from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field

import torch

from ictp2p.concurrency.threads import Event, Threads

LEAST = 256 * 1024
"""Bytes below which the allocator, which keeps small blocks itself, serves as well."""
IDLE = 30.0
"""Seconds without an allocation after which what is free goes back to the system."""
_REMEMBERED = 8
"""Allocations that bound what is kept free."""


@dataclass(slots=True)
class Region:
    """Memory that tensors may lie in."""

    number: int
    size: int
    memory: mmap.mmap
    base: int
    """Address of its first byte."""
    used: bool = field(default=True)


class Reuse:
    """Allocates flat bytes, in regions that are used again.

    Args:
        threads: what it waits with.
        keep: how many times the largest of the last allocations is kept free.
    """

    def __init__(self, threads: Threads, keep: int) -> None:
        self._threads = threads
        self._keep = keep
        self._regions: dict[int, Region] = {}
        self._numbers = itertools.count(1)
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)
        self._lock = threading.RLock()  # reentrant: a signal handler may close the peer in the middle of this
        self._asked = 0
        self._ended: Event | None = None
        """Ends the watch for idleness, while there is one."""

    @property
    def size(self) -> int:
        """Bytes of all regions, used and free."""
        with self._lock:
            return sum(region.size for region in self._regions.values())

    def empty(self, nbytes: int) -> torch.Tensor:
        """Flat bytes, not initialised."""
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        with self._lock:
            region = self._free(nbytes) or self._make(nbytes)
            region.used = True
            self._recent.append(region.size)
            self._trim(self._keep * max(self._recent))
            self._asked += 1
            self._watch()
        view = memoryview(region.memory)[:nbytes]
        # A tensor holds on to the buffer that it was made from, as does each view of it; when the last one goes, so
        # does the buffer. The finalizer may run in any thread, at any moment, so it does no more than say so.
        weakref.finalize(view, _let_go, region)
        return torch.frombuffer(view, dtype=torch.uint8)

    def close(self) -> None:
        """Give back what is free, and look after the rest no more."""
        with self._lock:
            if self._ended is not None:
                self._ended.set()
            self._trim(0)

    @abstractmethod
    def _map(self, number: int, size: int) -> mmap.mmap:
        """Make the memory of a region."""

    def _dropped(self, number: int) -> None:
        """A region is not used any more."""

    def _free(self, nbytes: int) -> Region | None:
        """The smallest region that is free and large enough, and not much too large."""
        regions = tuple(self._regions.values())  # a handler may close this meanwhile
        fit = [r for r in regions if not r.used and nbytes <= r.size <= 2 * nbytes + mmap.PAGESIZE]
        return min(fit, key=lambda region: region.size, default=None)

    def _make(self, nbytes: int) -> Region:
        number, size = next(self._numbers), -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = self._map(number, size)
        region = Region(number, size, memory, torch.frombuffer(memory, dtype=torch.uint8).data_ptr())
        self._regions[number] = region
        return region

    def _trim(self, most: int) -> None:
        """Give back what is free beyond `most` bytes."""
        free = sorted((r for r in tuple(self._regions.values()) if not r.used), key=lambda region: region.number)
        spare = sum(region.size for region in free) - most
        for region in free:
            if spare <= 0:
                return
            spare -= region.size
            if self._regions.pop(region.number, None) is not None:
                self._dropped(region.number)

    def _watch(self) -> None:
        if self._ended is None:
            ended = self._ended = self._threads.event()
            self._threads.start(lambda: self._until_idle(ended), "ictp2p memory")

    def _until_idle(self, ended: Event) -> None:
        """Wait for an interval in which nobody asks for memory; then give back what is free."""
        asked = -1
        while not ended.wait(IDLE):
            with self._lock:
                if asked == self._asked:
                    self._trim(0)
                    self._ended = None
                    return
                asked = self._asked


class Private(Reuse):
    """Memory of this process alone."""

    def empty(self, nbytes: int) -> torch.Tensor:
        """Flat bytes, not initialised; small ones from the allocator."""
        return super().empty(nbytes) if nbytes >= LEAST else torch.empty(nbytes, dtype=torch.uint8, device="cpu")

    def _map(self, number: int, size: int) -> mmap.mmap:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _let_go(region: Region) -> None:
    region.used = False
