"""What has arrived at one end of a connection and was not read yet, and the reads that give it to the program.

A read gives whatever is there, of several writes too, and ends anywhere: packets are cut where TCP likes, not where
writes end. A protocol may be replaced, or have enough, in the middle of one; what it did not take waits for the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

from sim.elided import nothing
from sim.internet import Internet
from sim.way import BULK

if TYPE_CHECKING:
    from sim.connection import Endpoint

CUT = 0.05
"""Share of the reads that end somewhere in what has arrived."""


class Inbox:
    """Of one end.

    Args:
        internet: where.
        end: whose.
    """

    def __init__(self, internet: Internet, end: Endpoint) -> None:
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()
        """Who gets what arrives."""
        self.reading = True
        """Whether it wants any."""
        self.unread = 0
        """Bytes."""
        self._net = internet
        self._end = end
        self._buffered = False
        """Whether the protocol says where bytes go."""
        self._items: deque[bytes | tuple[bytes, int]] = deque()
        self._eof = False
        self._split = False
        """Whether the rest of what was read in part waits for the loop's next turn."""

    def serve(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what arrives to `protocol`."""
        self.protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def resume(self) -> None:
        """Deliver again, from the next turn of the loop on."""
        self.reading = True
        if self._items or self._eof:
            self._feed_soon()

    def clear(self) -> None:
        """Forget what was not read."""
        self._items.clear()

    def take(self, data: bytes | tuple[bytes, int], size: int) -> None:
        """Hand a message on, behind what has not been read yet."""
        if self._items or not self.reading or self._end.closing:
            self.unread += size
            self._items.append(data)
        else:
            self._deliver(data, size)
        if (self._items or self._eof) and not self._split:
            self._feed()

    def end(self) -> None:
        """Nothing more will come: say so behind what has not been read yet."""
        self._eof = True
        if not self._split:
            self._feed()

    def _feed_soon(self) -> None:
        self._net.loop.call_soon(self._feed, context=self._end.process.context)

    def _feed(self) -> None:
        """Deliver what has arrived, as long as the protocol wants it."""
        self._split = False
        while self._items and self.reading and not (self._split or self._end.closing):
            item = self._next()
            size = item[1] if isinstance(item, tuple) else len(item)
            self.unread -= size
            self._deliver(item, size)
        if self._items or not self.reading:
            return
        if self._eof and not self._end.closing:
            self._eof = False
            keep = getattr(self.protocol, "eof_received", lambda: None)()
            if not keep:
                self._end.close()

    def _next(self) -> bytes | tuple[bytes, int]:
        """What has arrived first, with what is small behind it: a read gives whatever is there."""
        items = self._items
        item = items.popleft()
        while items and not self._buffered and isinstance(item, bytes):
            more = items[0]
            if not isinstance(more, bytes) or len(item) + len(more) > BULK:
                break
            items.popleft()
            item += more
        return item

    def _deliver(self, item: bytes | tuple[bytes, int], size: int) -> None:
        data = item[0] if isinstance(item, tuple) else item
        if size > 1 and (size <= BULK or not self._buffered):  # parts of what is large and bulk come anyway (`sim.way`)
            size = self._cut_short(data, size)
            data = data[:size]
        if self._end.peer.writing_paused:
            self._end.peer.passed()
        if self._buffered:
            self._fill(cast("asyncio.BufferedProtocol", self.protocol), data, size)
        else:
            whole = data if len(data) == size else data + bytes(size - len(data))
            cast("asyncio.Protocol", self.protocol).data_received(whole)

    def _cut_short(self, data: bytes, size: int) -> int:
        """How much of it one read gives: now and then the rest comes next turn, with what has arrived by then."""
        chance = self._net.chance.uniform("cut", self._end.remote, self._end.local)
        if chance >= CUT:
            return size
        at = 1 + int(chance / CUT * (size - 1))
        self._put_back(data[at:], size - at)
        self._split = True
        self._feed_soon()
        return at

    def _put_back(self, rest: bytes, size: int) -> None:
        self._items.appendleft((rest, size) if len(rest) < size else rest)
        self.unread += size

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes, size: int) -> None:
        done = 0
        while done < size and not self._end.closing:
            if protocol is not self.protocol or not self.reading:  # it was replaced, or has enough, half-way
                self._put_back(data[done:], size - done)
                if self.reading:
                    self._feed_soon()
                return
            done += _read(protocol, data, done, size)


def _read(protocol: asyncio.BufferedProtocol, data: bytes, done: int, size: int) -> int:
    """Have a protocol read once, from `done` on, as much as it has room for; give how much."""
    view = memoryview(protocol.get_buffer(-1))
    count = min(view.nbytes, size - done)
    real = memoryview(data)[done : done + count]
    known = len(real)
    view[:known] = real
    if known < count:
        view[known:count] = nothing(count - known)
    protocol.buffer_updated(count)
    return count
