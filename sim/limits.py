"""What a number may be, said once where it is declared, and in the same words wherever one is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ictp2p.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a number. One that is no number is never right."""

    least: float = -math.inf
    """Smallest number allowed."""
    above: float = -math.inf
    """Number below all allowed ones."""
    below: float = math.inf
    """Number above all allowed ones."""
    most: float = math.inf
    """Largest number allowed."""
    endless: bool = False
    """Whether it may be infinite."""

    def objection(self, value: float) -> str:
        """Why a number cannot be, as "must be ..."; empty if it can."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value := as_float(value)):
            return "must be a number"
        if value < self.least:
            return f"must be at least {self.least:g}"
        if value <= self.above and not math.isinf(self.above):
            return f"must be above {self.above:g}"
        if value >= self.below and not math.isinf(self.below):
            return f"must be below {self.below:g}"
        if value > self.most:
            return f"must be at most {self.most:g}"
        if math.isinf(value) and not self.endless:
            return "must be finite"
        return ""


def as_float(value: float) -> float:
    """A float; a whole number that is too large for one is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check(what: str, value: float, limits: Limits) -> None:
    """Let a value pass that can be.

    Raises:
        ConfigError: it cannot; the message names it.
    """
    if why := limits.objection(value):
        raise ConfigError(f"{what} = {value!r} {why}")


COUNT = Limits(least=0)
SHARE = Limits(least=0, below=1)
"""A probability that leaves something over: what never arrives is a cut."""
DURATION = Limits(least=0)
"""Seconds."""
LASTING = Limits(above=0)
"""Seconds of something that takes time, or how many times as long it takes."""
OFFSET = Limits(least=0, most=1e6)
"""Seconds that a clock jumps ahead; with much more, a float could not tell a nanosecond from none."""
CLOCK_RATE = Limits(least=0.01, most=100)
"""Of a clock, seconds per second."""
NTH = Limits(least=1)
"""Which one, from now."""
TIMES = Limits(least=1, most=100_000)
"""How often; each is a timer from the start."""
RATE = Limits(above=0, endless=True)
"""Bytes per second."""
WORKERS = Limits(least=1, most=1000)
"""Of one cluster; each has an address of its own."""
