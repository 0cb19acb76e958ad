"""How what passes between a training program and its peer's process is cut into frames.

    length u32 | number u64 | body          (of the body, in bytes; which request or question it is about, or 0)

A length is checked before anything is kept for it, though only a program of one's own can be at the other end: one that
is garbled must end the connection, not the memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ictp2p.errors import LocalProtocolError

HEADER = struct.Struct("<IQ")
MOST = 64 << 20
"""Largest body, bytes: a state's manifest is the longest thing that is sent."""


def checked(header: bytes) -> tuple[int, int]:
    """Length of a body, and number.

    Raises:
        LocalProtocolError: the length cannot be.
    """
    length, number = HEADER.unpack(header)
    if length > MOST:
        raise LocalProtocolError(f"a frame of {length} bytes was announced between a peer and its training program")
    return length, number


class Frames:
    """Takes bytes as they come, and gives whole frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Numbers and bodies of the frames that are complete now.

        Raises:
            LocalProtocolError: a length cannot be.
        """
        self._held += data
        start = 0
        try:
            while len(self._held) - start >= HEADER.size:
                length, number = checked(bytes(self._held[start : start + HEADER.size]))
                first = start + HEADER.size
                if len(self._held) - first < length:
                    break
                start = first + length
                yield number, bytes(self._held[first:start])
        finally:  # whatever becomes of a frame where it is taken: it is not given again
            del self._held[:start]
