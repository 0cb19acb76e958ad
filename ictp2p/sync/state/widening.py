"""Whether a fetch goes over several connections to each of its providers: tried, and kept if it gains.

What bounds one connection over a long way may not be the line (`bulk.stripes` says what else). A fetch need send
nothing to find that out: it is its own probe. Once what arrives grows no more, further connections are opened, are
given the time in which they find their rate, and then all that arrives is compared. All of it, and not what one
provider brings: where the newcomer's own line is full, one provider would only gain what another loses. What has gained
is tried again with more of it. What has not gained much is let go, for it would push aside whoever else has the line.

The comparison may be wrong, since others come and go on the line. It costs little then: it is about one fetch.
"""

from __future__ import annotations

import math
from enum import Enum, auto

GAIN = 1.25
"""Times what came over one connection to each: as of `bulk.stripes`."""
_GROWS = 2
"""Spans that new connections have to find their rate, and again as many in which they are measured."""


class Step(Enum):
    """What to do now."""

    WIDEN = auto()
    """Open further connections, and say `widened` or `refused`."""
    NARROW = auto()
    """Use those that were opened last no more."""


class _Stage(Enum):
    ALONE = auto()
    OPENING = auto()
    GROWING = auto()
    MEASURING = auto()
    OVER = auto()


class Widening:
    """One fetch's trials of more connections. A pure machine.

    Args:
        span: seconds over which what arrives is measured; several round trips.
    """

    def __init__(self, span: float) -> None:
        self._span = span
        self._stage = _Stage.ALONE
        self._since = math.inf
        """When the present span began; never, before anything has come."""
        self._until = math.inf
        self._then = 0
        """Bytes that had come by then."""
        self.rate = self._before = 0.0
        """Bytes/s in the last span, and over those connections that there were before the last ones."""

    def look(self, arrived: int, now: float) -> Step | None:
        """Say what to do, now that so many bytes of the state have come."""
        if self._stage in (_Stage.OPENING, _Stage.OVER):
            return None
        if self._since == math.inf:
            if arrived:
                self._begin(arrived, now, 1)
            return None
        if now < self._until:
            return None
        last, self.rate = self.rate, (arrived - self._then) / (now - self._since)
        match self._stage:
            case _Stage.ALONE if 0.0 < self.rate < GAIN * last:
                return self._widen(max(last, self.rate))
            case _Stage.ALONE:
                self._begin(arrived, now, 1)
            case _Stage.GROWING:
                self._stage = _Stage.MEASURING
                self._begin(arrived, now, _GROWS)
            case _ if self.rate >= GAIN * self._before:
                return self._widen(self.rate)
            case _:
                self._stage = _Stage.OVER
                return Step.NARROW
        return None

    def widened(self, arrived: int, now: float) -> None:
        """There are further connections from now on."""
        self._stage = _Stage.GROWING
        self._begin(arrived, now, _GROWS)

    def refused(self) -> None:
        """There are none to be had, or nothing speaks for them."""
        self._stage = _Stage.OVER

    def _widen(self, rate: float) -> Step:
        self._before, self._stage = rate, _Stage.OPENING
        return Step.WIDEN

    def _begin(self, arrived: int, now: float, spans: int) -> None:
        self._then, self._since, self._until = arrived, now, now + spans * self._span
