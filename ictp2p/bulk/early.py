"""First chunks that come before we have begun their collective, so that none needs a round trip to begin.

A participant may send each neighbour one small chunk behind its own `BEGIN`, before it has heard theirs, and over a
long way as much as fills that until their word can be here (an *eager* protocol, where MPI's *rendezvous* asks first).
Who has not begun keeps it here. Room is bounded: all that came of the oldest collective is dropped for what comes of a
newer one, and so is what still comes of it. The `BEGIN` that we send later says how many chunks these were, and asks
for them again. So nothing depends on what is kept. What the sender had sent before it heard that is on its way to who
has begun, and may overtake what is sent again, as chunks on several connections do (`exchange`).
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from ictp2p.bulk.frames import Header
from ictp2p.collectives.channel import EARLY_BYTES

KEPT_BYTES = EARLY_BYTES + 1024 * 1024
"""Kept per connection: all that one collective may have sent over a long way, beside the small chunks of others."""
_LEAST = 1024
"""Bytes that a chunk counts for in any case: what is kept with it has a size as well."""


class EarlyChunks:
    """What one connection has brought too early.

    Args:
        remembered: of how many collectives chunks are kept at most, and of how many more it is known that theirs were
            dropped. Who is still further ahead has its collective fail by its deadline.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._kept: OrderedDict[bytes, list[tuple[Header, bytes]]] = OrderedDict()
        self._dropped: OrderedDict[bytes, int] = OrderedDict()
        self._size = 0

    def keep(self, header: Header, body: memoryview) -> None:
        """Keep a chunk of a collective that we have not begun, if none of it was dropped."""
        if header.tag in self._dropped:
            self._dropped[header.tag] += 1
            return
        chunk = replace(header, shared=False) if header.shared else header, bytes(body)
        self._kept.setdefault(header.tag, []).append(chunk)
        self._size += _counted(chunk)
        while self._size > KEPT_BYTES or len(self._kept) > self._remembered:
            tag, oldest = self._kept.popitem(last=False)
            self._size -= sum(map(_counted, oldest))
            self._dropped[tag] = len(oldest)
        while len(self._dropped) > self._remembered:
            self._dropped.popitem(last=False)

    def take(self, tag: bytes) -> list[tuple[Header, bytes]]:
        """Give what was kept for `tag`, in the order in which it came, once."""
        found = self._kept.pop(tag, [])
        self._size -= sum(map(_counted, found))
        return found

    def dropped(self, tag: bytes) -> int:
        """Say, once, how many chunks came for `tag` and were not kept: if any, then all that came."""
        return self._dropped.pop(tag, 0)

    def forget(self, tag: bytes) -> None:
        """Nobody will begin it here."""
        self.take(tag)
        self.dropped(tag)


def _counted(chunk: tuple[Header, bytes]) -> int:
    return max(_LEAST, len(chunk[1]))
