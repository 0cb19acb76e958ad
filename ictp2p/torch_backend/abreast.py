"""How many collectives of a group are under way at a time: so many that each can end within its own time.

A collective's time begins when it does, and all that are under way share the line. So of large ones only a few are: a
queue of them would be over for all at once, with most of each moved, where one after the other each is there in time.
Of small ones there may be many, since what they take is not bytes but hops. All begin in the order of the calls, which
ranks have in common: no turn waits for a later call, even if ranks take one of them for larger than others do.

Whoever waits is patient as long as those before it get somewhere: its time begins anew with each that ends well. Where
a rank does not come, none does, and what waits is over with what is under way, and not each in its turn. Who would look
for the cause of that finds it before it: the error names the first that was still under way.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass

MOST = 64
"""At a time, whatever their size. A rank that is late has to remember no more beginnings of others than these."""
FEW = 2
"""At a time, however large they are, as with torch's Gloo: one's last hop is another's first."""
BYTES = 64 * 1024 * 1024
"""From the third on: what all of them move may be so much, which is what a line of 10 Gbit/s holds in 50 ms."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One collective's turn, from when it has begun until it ends."""

    name: str
    """For people."""
    nbytes: int


class Abreast:
    """The collectives of one rank that are under way, and those that wait for them. On the event loop."""

    def __init__(self) -> None:
        self._under_way: dict[Turn, None] = {}
        """In the order in which they began."""
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], Turn]] = deque()
        self._moved = -math.inf
        """When the last one ended well."""

    async def begin(self, name: str, nbytes: int, patience: float) -> Turn:
        """Wait for our turn to move so many bytes; each is ended once. `name` is what others hear that wait behind us.

        Raises:
            TimeoutError: none that was before us has ended well for `patience` seconds, of our own; names the first.
        """
        turn = Turn(name, nbytes)
        if not self._waiting and self._has_room(nbytes):
            self._take(turn)
            return turn
        loop = asyncio.get_running_loop()
        begun, came = loop.create_future(), loop.time()
        self._waiting.append((begun, turn))
        self._next()
        try:
            while not begun.done():
                left = max(came, self._moved) + patience - loop.time()
                if left <= 0:
                    first = next(iter(self._under_way)).name
                    raise TimeoutError(
                        f"no call before it has succeeded for {patience:g} s: {first} is still under way"
                    )
                await asyncio.wait([begun], timeout=left)
        except BaseException:
            if not begun.cancel():
                self.end(turn, well=False)  # it has just become ours
            self._next()
            raise
        return turn

    def end(self, turn: Turn, *, well: bool) -> None:
        """Let the next ones begin; `well`: it succeeded."""
        del self._under_way[turn]
        self._bytes -= turn.nbytes
        if well:
            self._moved = asyncio.get_running_loop().time()
        self._next()

    def _next(self) -> None:
        while self._waiting:
            begun, turn = self._waiting[0]
            if not begun.done():  # else it was given up
                if not self._has_room(turn.nbytes):
                    return
                self._take(turn)
                begun.set_result(None)
            self._waiting.popleft()

    def _take(self, turn: Turn) -> None:
        self._under_way[turn] = None
        self._bytes += turn.nbytes

    def _has_room(self, nbytes: int) -> bool:
        number = len(self._under_way)
        return number < MOST and (number < FEW or self._bytes + nbytes <= BYTES)
