"""How many collectives of a group are under way at a time: so many that each can end within its own time.

A collective's time begins when it does, and all that are under way share the line. So of large ones only a few are: a
queue of them would be over for all at once, with most of each moved, where one after the other each is there in time.
Of small ones there may be many, since what they take is not bytes but hops. All begin in the order of the calls, which
ranks have in common: no turn waits for a later call, even if ranks take one of them for larger than others do.

Whoever waits is patient as long as those before it get somewhere: its time begins anew with each that ends well. Where
a rank does not come, none does, and what waits is over with what is under way, and not each in its turn.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque

MOST = 64
"""At a time, whatever their size. A rank that is late has to remember no more beginnings of others than these."""
FEW = 2
"""At a time, however large they are, as with torch's Gloo: one's last hop is another's first."""
BYTES = 64 * 1024 * 1024
"""From the third on: what all of them move may be so much, which is what a line of 10 Gbit/s holds in 50 ms."""


class Abreast:
    """The collectives of one rank that are under way, and those that wait for them. On the event loop."""

    def __init__(self) -> None:
        self._number = 0
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._moved = -math.inf
        """When the last one ended well."""

    async def begin(self, nbytes: int, patience: float) -> None:
        """Wait for our turn to move so many bytes; each is ended once.

        Raises:
            TimeoutError: none that was before us has ended well for `patience` seconds, of our own.
        """
        if not self._waiting and self._has_room(nbytes):
            self._take(nbytes)
            return
        loop = asyncio.get_running_loop()
        turn, came = loop.create_future(), loop.time()
        self._waiting.append((turn, nbytes))
        self._next()
        try:
            while not turn.done():
                left = max(came, self._moved) + patience - loop.time()
                if left <= 0:
                    raise TimeoutError
                await asyncio.wait([turn], timeout=left)
        except BaseException:
            if not turn.cancel():
                self.end(nbytes, well=False)  # it has just become ours
            self._next()
            raise

    def end(self, nbytes: int, *, well: bool) -> None:
        """Let the next ones begin; `well`: it succeeded."""
        self._number -= 1
        self._bytes -= nbytes
        if well:
            self._moved = asyncio.get_running_loop().time()
        self._next()

    def _next(self) -> None:
        while self._waiting:
            turn, nbytes = self._waiting[0]
            if not turn.done():  # else it was given up
                if not self._has_room(nbytes):
                    return
                self._take(nbytes)
                turn.set_result(None)
            self._waiting.popleft()

    def _take(self, nbytes: int) -> None:
        self._number += 1
        self._bytes += nbytes

    def _has_room(self, nbytes: int) -> bool:
        return self._number < MOST and (self._number < FEW or self._bytes + nbytes <= BYTES)
