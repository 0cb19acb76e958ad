"""Messages of a rank to itself: they go nowhere, and are told apart by tag and number as all others are.

One that is sent is kept until it is taken, and its send is over at once: in one thread nobody could receive it before.
One whose receive was given up is taken along by it, so that no later receive is given what was meant for that one.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from torch import Tensor

Key: TypeAlias = tuple[int, int]
"""A tag, and which message of that tag."""


class Own:
    """Those of one rank. On the event loop."""

    def __init__(self) -> None:
        self._sent: dict[Key, Tensor] = {}
        self._arrivals: dict[Key, asyncio.Future[None]] = {}
        self._refused: set[Key] = set()

    def put(self, key: Key, data: Tensor) -> bool:
        """Leave a message to be taken; whether anybody will, or its receive was given up."""
        if key in self._refused:
            self._refused.discard(key)
            return False
        self._sent[key] = data
        if key in self._arrivals and not self._arrivals[key].done():
            self._arrivals[key].set_result(None)
        return True

    def arrival(self, key: Key) -> asyncio.Future[None]:
        """What is done as soon as a message is there. One at a time may wait for it, and then `leave` or `take` it."""
        self._arrivals[key] = arrival = asyncio.get_running_loop().create_future()
        if key in self._sent:
            arrival.set_result(None)
        return arrival

    def leave(self, key: Key) -> None:
        """Wait for a message no longer, which others may still take."""
        self._arrivals.pop(key).cancel()

    async def take(self, key: Key, end: float) -> Tensor:
        """Take a message, or refuse it where it does not come.

        Raises:
            TimeoutError: it is `end` by the loop's clock.
        """
        try:
            async with asyncio.timeout_at(end):
                await self.arrival(key)
        except TimeoutError:
            self.refuse(key)
            raise
        finally:
            self.leave(key)
        return self._sent.pop(key)

    def refuse(self, key: Key) -> None:
        """See that nobody takes a message any more: it is dropped, or its send will fail."""
        if self._sent.pop(key, None) is None:
            self._refused.add(key)
