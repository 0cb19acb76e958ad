"""Memory of a fixed range whose parts can be given back to the system, and taken again.

An allocator gives back what it has allocated, all of it or none. Pages that are mapped for one range can be given back
one by one: the range keeps its addresses, so views of it stay valid, what was given back reads as zeros, and takes up
memory again once it is written to (Linux, madvise(2), MADV_DONTNEED on a private anonymous mapping).
"""

from __future__ import annotations

import mmap

import torch


class Pages:
    """So many bytes, zeros to begin with, that take up memory where they have been written to."""

    def __init__(self, size: int) -> None:
        """Map `size` bytes; none of them takes up memory yet."""
        self._map = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)[:size]
        """All of them, flat."""

    def release(self, start: int, stop: int) -> None:
        """Give back the pages that lie entirely in `[start, stop)`, or reach beyond the end. Their content is lost."""
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, min(stop, len(self._map))
        if stop < len(self.bytes):
            last = last // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
