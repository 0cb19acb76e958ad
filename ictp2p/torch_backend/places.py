"""How many messages may be under way between two ranks, so that each end remembers all that the other has begun.

A connection remembers of its other end only so many messages that it has begun and this one has not (`bulk.desk`):
what it forgets would never come. So of more than these nothing is said until one before them is over.

Nobody waits so for a message that is wanted now: once the other end has begun it, it needs no memory there. Hence ranks
that take messages of several tags in another order than they were sent cannot wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

MOST = 1024
"""Messages in each direction; a quarter of what is remembered, for as many again may have been begun at both ends."""


class Places:
    """Those of one direction between two ranks. On the event loop."""

    def __init__(self) -> None:
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, wanted: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        """Take a place, in turn; or beyond all others as soon as `wanted` is over. Each is left once.

        Raises:
            TimeoutError: there was none within `timeout` seconds.
        """
        if self._taken >= MOST:
            await self._turn(wanted, timeout)
        self._taken += 1

    def leave(self) -> None:
        """Give a place back."""
        self._taken -= 1
        self._next()

    async def _turn(self, wanted: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        coming = asyncio.ensure_future(wanted())
        try:
            both: set[asyncio.Future[None]] = {turn, coming}
            done, _ = await asyncio.wait(both, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if turn.done():
                self._next()  # the place that was meant for us
            raise
        finally:
            coming.cancel()
            turn.cancel()
        if not done:
            raise TimeoutError

    def _next(self) -> None:
        while self._waiting and self._taken < MOST:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
