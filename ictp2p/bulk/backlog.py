"""How much a transport may hold that the kernel has not taken: what one offers next leaves behind all of that.

The profile says how much, and connections that carry chunks beside each other share it. A slow one of several holds no
more than it sends soon, as the rate that it has shown has it. Who asks for less, as a probe does that may have to
change its mind on a slow link, has that until it asks no more.
"""

from __future__ import annotations

import asyncio

from ictp2p.bulk import tuning
from ictp2p.bulk.outbound import Outbound


class Backlog:
    """Of one connection.

    Args:
        transport: its transport.
        outbound: what writes to it.
        high_water: bytes, as `BulkProfile.high_water`.
    """

    def __init__(self, transport: asyncio.Transport, outbound: Outbound, high_water: int) -> None:
        self._transport = transport
        self._outbound = outbound
        self._high_water = self._part = high_water
        self._asked: int | None = None
        """What the transport is to hold, if not what the profile says."""
        self._several = False
        """Whether other connections carry chunks beside it."""
        self._soon: int | None = None
        """What it sends soon, if it is a slow one of several."""
        self._over = False

    def hold(self, size: int | None) -> None:
        """Let the transport hold at most `size` bytes; None: as the profile says."""
        self._asked = size
        if not self._over:
            self._outbound.hold(min(self._part, self._soon or self._part) if size is None else size)

    def hold_as_one_of(self, count: int, few: int) -> None:
        """Let the transport hold its part of what `few` may, as the profile says, if it carries chunks with others."""
        self._several = count > 1
        self._part = self._high_water * few // max(few, count)
        self.refill()

    def refill(self) -> None:
        """Hold and keep what suits the rate that the connection has shown (`tuning.refill`)."""
        if not self._over:
            self._soon = tuning.refill(self._transport, one_of_several=self._several)
            self.hold(self._asked)

    def end(self) -> None:
        """The connection has ended: ask nothing of its transport any more."""
        self._over = True
