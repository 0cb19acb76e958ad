"""A ceiling on the tensor bytes that one peer sends, for lines that it must share with others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from ictp2p.bulk.frames import Kind
from ictp2p.bulk.pacing import Bucket

TENSORS: Final = frozenset({Kind.PARTIAL, Kind.RESULT, Kind.WHOLE, Kind.REPLY})
"""What counts: chunks of collectives, and of states that others fetch."""


class Sender(Protocol):
    """What sends under a ceiling: a connection."""

    def pump(self) -> None:
        """Send what may leave now."""
        ...


class Ceiling:
    """Bytes per second that all connections send together, a frame of each in turn.

    Args:
        rate: of the ceiling.
        clock: monotonic seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._clock = clock
        self._bucket = Bucket()
        self._bucket.set(rate, clock())
        self._waiting: OrderedDict[Sender, None] = OrderedDict()
        self._turn: Sender | None = None
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, sender: Sender) -> bool:
        """Say whether `sender` may send a frame now; if not, it is pumped when it is its turn."""
        free = not self._bucket.delay(self._clock())
        if free and (sender is self._turn or not self._waiting):
            return True
        self._waiting.setdefault(sender)
        self._arm()
        return False

    def spend(self, size: int) -> None:
        """Note that `size` bytes left."""
        self._bucket.spend(size)

    def forget(self, sender: Sender) -> None:
        """A connection has ended."""
        self._waiting.pop(sender, None)

    def _arm(self) -> None:
        if self._timer is None:
            delay = self._bucket.delay(self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._serve)

    def _serve(self) -> None:
        self._timer = None
        while self._waiting and not self._bucket.delay(self._clock()):
            self._turn, _ = self._waiting.popitem(last=False)
            self._turn.pump()
        self._turn = None
        if self._waiting:
            self._arm()
