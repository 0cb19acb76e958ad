"""Bandwidth classes: how a distance vector finds fast paths without ever comparing bandwidths.

Class k holds the links of at least `250 kB/s * 2**k` (2 Mb/s, 4 Mb/s, ... 2 Gb/s), and class 0 holds every
link. In each class an instance of Babel finds the path of least delay, as OSPF's multi-topology routing does
(RFC 4915). A transfer of `size` bytes then takes the class with the least `delay + size / bandwidth`, so a
ping takes the short path and a model the wide one. Rounding a link down to its class costs at most a factor
of two on the second term.

A link stays in its class while its measured bandwidth wobbles: it leaves after two measurements in a row below
0.8 of the class, and enters after three in a row above 1.25. The very first measurement is believed at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BASE_BANDWIDTH: Final = 250_000.0
"""Bytes per second of class 0: 2 Mb/s."""

LEAVE_BELOW: Final = 0.8
LEAVE_AFTER: Final = 2
ENTER_ABOVE: Final = 1.25
ENTER_AFTER: Final = 3


def class_bandwidth(traffic_class: int) -> float:
    """Bytes per second that every link of the class carries (class 0: assumed of links slower than that)."""
    return BASE_BANDWIDTH * 2.0**traffic_class


def fastest(delays: Iterable[tuple[int, float]], size: float) -> int | None:
    """Choose the class in which `size` bytes arrive first; the lower of two equals.

    Args:
        delays: (class, path delay in seconds) of every class that has a path.
        size: bytes to move; a ping is 0.
    """
    times = [(delay + size / class_bandwidth(traffic_class), traffic_class) for traffic_class, delay in delays]
    return min(times)[1] if times else None


class LinkClasses:
    """The classes that one link belongs to: 0 up to and including `top`."""

    def __init__(self, classes: int) -> None:
        self.top = 0
        self._classes = classes
        self._measured = False
        self._low: list[int] = []
        self._high: list[int] = []

    def sample(self, bandwidth: float | None) -> bool:
        """Take a measurement in bytes per second, and say whether they changed."""
        before = self.top
        if bandwidth is None:
            self.top = 0
        elif not self._measured:
            self.top = self._highest(bandwidth)
        else:
            self._drift(bandwidth)
        self._measured = bandwidth is not None
        if self.top != before or bandwidth is None:
            self._low, self._high = [], []
        return self.top != before

    def _drift(self, bandwidth: float) -> None:
        """Move only on evidence in a row; of a row, the sample that moves us least counts."""
        low, high = self._highest(bandwidth / LEAVE_BELOW), self._highest(bandwidth / ENTER_ABOVE)
        self._low = [*self._low, low] if low < self.top else []
        self._high = [*self._high, high] if high > self.top else []
        if len(self._low) >= LEAVE_AFTER:
            self.top = max(self._low)
        elif len(self._high) >= ENTER_AFTER:
            self.top = min(self._high)

    def _highest(self, bandwidth: float) -> int:
        fitting = [k for k in range(self._classes) if class_bandwidth(k) <= bandwidth]
        return max(fitting, default=0)
