"""Bodies between two processes of one host, through memory that both have mapped: a ring buffer in each direction.

Over loopback TCP each byte is copied into the kernel and out of it again, in pages, and a ring of three or four
processes on two cores is bound by just that: even one in C is 1.3 to 1.5 times as fast as Gloo, no more. Memory that
both ends have mapped costs one copy for a result, and for a contribution one on the sending side alone, since it is
added up where it lies. So do MPI and NCCL between processes of one host.

Only bodies travel so. Their headers stay on the connection, which keeps the order, wakes the reader, seals each header,
tells of a death at once, and is watched for stalls; who asks or answers otherwise needs not know of any of this. Where
there is no room in the ring for a body it goes over the connection, too.

*Rooms.* Bodies stand one behind the other, each in one piece, at places that both ends reckon alike, so no place is
said on the wire. The reader says how far it has read, at least once in a quarter of the ring; so a writer that waits
for a quarter always gets it.

*Handing it over.* The writer makes a memory file (`memfd_create`), sealed against shrinking, by which it could kill the
reader, and offers it by the number of its process and descriptor, under a random token that stands in the file. The
reader opens it under `/proc`, which the kernel allows to processes of the same user alone, and only if it is such a
file; whose offer it was, the connection has proven. If anything is different, as between containers or hosts, it says
no and all goes on as before. Nothing has a name, and a fork holds nothing of it (`mapping`), so nothing is left behind
by whoever is killed.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from weakref import WeakSet

from ictp2p.bulk.mapping import mapped
from ictp2p.concurrency.forks import held_alone, undivided
from ictp2p.errors import RemoteProtocolError

if sys.platform == "linux":
    import fcntl

RING_BYTES = 16 * 1024 * 1024
"""Of each ring: eight chunks. With four of them whoever shares a core with its neighbour sleeps and wakes more often,
which costs four ranks on two cores a tenth. A ring of 32 MiB gains no more."""
LEAST = 16 * 1024
"""Bytes of a body from which on it goes through the ring: a smaller one costs the kernel less than two headers do."""
_MOST_OFFERED = 64 * 1024 * 1024
_ALIGNED = 64
"""Bytes: elements are added up where they lie, and no two bodies have a cache line in common."""
_PAGE = 4096
"""Before the ring: the token."""
_NAME = "ictp2p"
_OFFER = struct.Struct("!IIQ16s")  # process, descriptor, bytes of the ring, token
TOKEN_BYTES = 16


def _supported() -> bool:
    """Say whether there are memory files: a Python that was built on an old system lacks them on any Linux."""
    return sys.platform == "linux" and hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


class Places:
    """Where bodies go in a ring, for both ends alike. Positions count on for ever, gaps included."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.position = 0
        """Behind the last body."""

    def next(self, size: int) -> tuple[int, int]:
        """Give where a body of `size` bytes begins in the ring, and the position behind it."""
        start = self.position % self.capacity
        gap = self.capacity - start if start + size > self.capacity else 0
        return (start if not gap else 0), self.position + gap + -(-size // _ALIGNED) * _ALIGNED


class Writer:
    """The writing end.

    Args:
        token: 16 random bytes, by which the other end knows that it has opened the right file.
        capacity: bytes of the ring.

    Raises:
        OSError: the system has no such memory for us.
    """

    def __init__(self, token: bytes, capacity: int = RING_BYTES) -> None:
        if not _supported():
            raise OSError("no memory files here")
        with undivided():
            number = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            self._open: int | None = number
            held_alone(self)
        try:
            os.posix_fallocate(number, 0, _PAGE + capacity)  # else a full system kills us at the first touch
            fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            whole = mapped(number, _PAGE + capacity)
        except BaseException:
            self.taken()
            raise
        whole[:TOKEN_BYTES] = token
        self._ring = whole[_PAGE:]
        self._places = Places(capacity)
        self.offer = _OFFER.pack(os.getpid(), number, capacity, token)
        """What the other end opens."""
        self.freed = 0
        """The position up to which the reader is done."""

    def taken(self) -> None:
        """The other end has opened it, or never will: no third process shall."""
        with undivided():
            number, self._open = self._open, None
            if number is not None:
                os.close(number)

    def close(self) -> None:
        """A fork holds nothing of it."""
        self.taken()

    def crowded(self) -> bool:
        """Say whether a quarter of the ring, in one piece, is missing: the reader is about to free as much."""
        return self._places.next(self._places.capacity // 4)[1] - self.freed > self._places.capacity

    def room(self, size: int) -> memoryview | None:
        """Give the place of the next body, of `size` bytes; None if there is no room for it now."""
        start, position = self._places.next(size)
        if size > self._places.capacity or position - self.freed > self._places.capacity:
            return None
        return self._ring[start : start + size]

    def wrote(self, size: int) -> None:
        """A body of `size` bytes stands in its place."""
        self._places.position = self._places.next(size)[1]

    def free(self, position: int) -> None:
        """Note how far the reader is.

        Raises:
            RemoteProtocolError: it cannot be there.
        """
        if not self.freed < position <= self._places.position:
            raise RemoteProtocolError(
                f"freed shared memory up to {position}, not within {self.freed}..{self._places.position}"
            )
        self.freed = position


class Rings:
    """All rings that one process writes to.

    Args:
        random_bytes: gives tokens.
        most: how many there may be at a time; more connections than that have none.
        capacity: bytes of each.
    """

    def __init__(self, random_bytes: Callable[[int], bytes], most: int, capacity: int = RING_BYTES) -> None:
        self._random_bytes = random_bytes
        self._most = most
        self._capacity = capacity
        self._living: WeakSet[Writer] = WeakSet()

    def another(self) -> Writer | None:
        """Make one; None if there are enough, or the system has no such memory for us."""
        if len(self._living) >= self._most:
            return None
        try:
            writer = Writer(self._random_bytes(TOKEN_BYTES), self._capacity)
        except OSError:
            return None
        self._living.add(writer)
        return writer


class Reader:
    """The reading end.

    Args:
        ring: the mapped memory.
    """

    def __init__(self, ring: memoryview) -> None:
        self._ring = ring
        self._places = Places(len(ring))
        self._told = 0

    def read(self, size: int) -> memoryview:
        """Give the next body, of `size` bytes; it stands until `done` has been told to the other end.

        Raises:
            RemoteProtocolError: none can be that long.
        """
        if not 0 < size <= self._places.capacity:
            raise RemoteProtocolError(f"body of {size} bytes in a ring of {self._places.capacity}")
        start, self._places.position = self._places.next(size)
        return self._ring[start : start + size]

    def done(self) -> int:
        """All that was read has been used: give the position to tell the other end, or 0 as long as that is early."""
        if self._places.position - self._told < self._places.capacity // 4:
            return 0
        self._told = self._places.position
        return self._told


def opened(offer: memoryview) -> Reader | None:
    """Map what the other end of a connection offers; None if it is not on this host, or not ours to open.

    Raises:
        RemoteProtocolError: that is no offer.
    """
    if len(offer) != _OFFER.size:
        raise RemoteProtocolError(f"offer of {len(offer)} bytes, expected {_OFFER.size}")
    process, number, capacity, token = _OFFER.unpack(offer)
    if not _ALIGNED <= capacity <= _MOST_OFFERED or capacity % (4 * _ALIGNED):
        raise RemoteProtocolError(f"offer of a ring of {capacity} bytes")
    if not _supported():
        return None
    try:
        return _mapped(Path(f"/proc/{process}/fd/{number}"), capacity, token)
    except (OSError, ValueError):  # no such process here, or it is somebody else's
        return None


def _mapped(path: Path, capacity: int, token: bytes) -> Reader | None:
    """Map a memory file; to open anything else could have effects, so its name is read first."""
    if str(path.readlink()) != f"/memfd:{_NAME} (deleted)":
        return None
    with undivided():
        number = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            sealed = fcntl.fcntl(number, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            if not sealed or os.fstat(number).st_size != _PAGE + capacity:  # in this order: unsealed it could shrink
                return None
            memory = mapped(number, _PAGE + capacity)
        finally:
            os.close(number)
    return Reader(memory[_PAGE:]) if memory[:TOKEN_BYTES] == token else None
