"""Memory files, mapped so that nothing but the mapping is left of them.

Python's `mmap` keeps a descriptor of the file for itself, up to 3.12 without a choice. Through `/proc` every process of
the same user could open that one for as long as the mapping stands, although it may not trace us (Yama), and a fork
inherits it. A fork has no use for the mapping either, but would keep its memory for as long as it lives: the workers of
a `DataLoader` are forks and outlive many connections. So it gets none of both (`MADV_DONTFORK`, madvise(2)), nor does
one that comes from another thread between the two calls (`forks.undivided`).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import weakref

from ictp2p.concurrency.forks import undivided

_FAILED = ctypes.c_void_p(-1).value


def mapped(number: int, size: int) -> memoryview:
    """Map the first `size` bytes of the file behind a descriptor, which may be closed then, until no view is left.

    Args:
        number: the descriptor. The file must not be shorter, nor become so: to touch what is missing kills us.
        size: bytes.

    Raises:
        OSError: it cannot be mapped.
    """
    with undivided():
        address = _mapped_alone(number, size)
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, _unmap, address, size, os.getpid()).atexit = False  # others may use it to the end
    return memoryview(memory).cast("B")


def _mapped_alone(number: int, size: int) -> int:
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address: int = _system().mmap(None, ctypes.c_size_t(size), access, mmap.MAP_SHARED, number, ctypes.c_long(0))
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), f"{size} bytes of a memory file cannot be mapped")
    if _system().madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTFORK):
        why = ctypes.get_errno()
        _unmap(address, size, os.getpid())
        raise OSError(why, f"{size} bytes of a memory file cannot be kept from forks")
    return address


def _unmap(address: int, size: int, owner: int) -> None:
    if os.getpid() == owner:  # in a fork something else may lie there
        _system().munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))


@functools.cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    return system
