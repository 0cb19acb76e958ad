"""How much of some memory takes up any."""

from __future__ import annotations

import mmap
from pathlib import Path

import torch


def resident(memory: memoryview) -> int:
    """Bytes of the pages of `memory` that take up any (Linux, /proc/pid/pagemap: the highest of each entry's bits)."""
    address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    first, last = address // mmap.PAGESIZE, -(-(address + len(memory)) // mmap.PAGESIZE)
    with Path("/proc/self/pagemap").open("rb") as pages:
        pages.seek(8 * first)
        entries = pages.read(8 * (last - first))
    return mmap.PAGESIZE * sum(entry >> 7 for entry in entries[7::8])
