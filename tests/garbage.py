"""What is left to the garbage collector, which comes when it likes: ten times a second, or once a day."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import torch

LARGE = 1024 * 1024
"""Bytes from which on an object counts: other threads of this process leave small things at any moment."""


@contextmanager
def uncollected(*kinds: type) -> Iterator[list[str]]:
    """Fill the list, at the end, with the types of objects that only the garbage collector would free.

    Large ones, and whatever is of these kinds.
    """
    found: list[str] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [type(each).__name__ for each in gc.garbage if _size(each) >= LARGE or isinstance(each, kinds)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _size(each: object) -> int:
    if isinstance(each, torch.Tensor | memoryview):
        return each.nbytes
    return len(each) if isinstance(each, mmap.mmap) else 0
