"""Rings in shared memory, and what is open and mapped of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ictp2p.bulk import shared

TOKEN = b"t" * shared.TOKEN_BYTES
RING = 1024


def descriptors() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


def ring(capacity: int = RING) -> tuple[shared.Writer, shared.Reader]:
    writer = shared.Writer(TOKEN, capacity)
    reader = shared.opened(memoryview(writer.offer))
    writer.taken()
    assert reader is not None
    return writer, reader


def put(writer: shared.Writer, body: bytes) -> bool:
    """Write a body; False if there is no room for it. One that is begun and given up leaves no trace."""
    for attempt in (bytes(len(body)), body):
        room = writer.room(len(body))
        if room is None:
            return False
        room[:] = attempt
    writer.wrote(len(body))
    return True


def mappings() -> set[str]:
    """Give each mapping of a memory file, with its inode: other tests of this process may have left some of theirs."""
    return {line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:ictp2p" in line}


def rings(world: Any) -> list[int]:
    """Count the rings of each connection, at either end of it: two, if both directions have one."""
    connections = [c for bulk in world.bulks.values() for kept in bulk._pool._ready.values() for c in kept]
    return [(c.ring is not None) + (c._outbound.ring is not None) for c in connections]
