"""First chunks that come before we have begun their collective, so that small ones need no round trip to begin.

A participant may send each neighbour one small chunk behind its own `BEGIN`, before it has heard theirs. Who has not
begun keeps it here. Room is bounded: the oldest is dropped for a newer one, and the `BEGIN` that we send later asks for
it again. So nothing depends on what is kept. Since it is one chunk, and the sender sends nothing else before it hears
from us, what is sent again cannot be overtaken.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from ictp2p.bulk.frames import Header

EARLY_BYTES = 1024 * 1024
"""Kept per connection."""


class EarlyChunks:
    """What one connection has brought too early.

    Args:
        remembered: of how many collectives a chunk is kept at most, and of how many more it is known that theirs was
            dropped. Who is still further ahead has its collective fail by its deadline.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._kept: OrderedDict[bytes, tuple[Header, bytes]] = OrderedDict()
        self._dropped: OrderedDict[bytes, None] = OrderedDict()
        self._size = 0

    def keep(self, header: Header, body: memoryview) -> None:
        """Keep a chunk of a collective that we have not begun; who sends a second one has it dropped."""
        if header.tag in self._kept or header.tag in self._dropped:
            return
        self._kept[header.tag] = replace(header, shared=False) if header.shared else header, bytes(body)
        self._size += len(body)
        while self._size > EARLY_BYTES or len(self._kept) > self._remembered:
            tag, (_, oldest) = self._kept.popitem(last=False)
            self._size -= len(oldest)
            self._dropped[tag] = None
        while len(self._dropped) > self._remembered:
            self._dropped.popitem(last=False)

    def take(self, tag: bytes) -> tuple[Header, bytes] | None:
        """Give what was kept for `tag`, once."""
        found = self._kept.pop(tag, None)
        if found is not None:
            self._size -= len(found[1])
        return found

    def dropped(self, tag: bytes) -> bool:
        """Say, once, whether a chunk came for `tag` and was not kept."""
        return self._dropped.pop(tag, tag) is None
