"""What one flow may have by itself, whatever others take: its window, its losses, and what its hosts keep for it.

Flows start slowly: a flow may send no more than its congestion window per round trip, ten segments at first and twice
as much after each round trip. Where packets are lost it may not exceed what Mathis et al. (1997) found, and starts
slowly again after a rest; else it is taken for bbr's, which keeps its window. Nor does it ever exceed what its hosts
keep for it. What is alike in all flows is a table, since a world has thousands of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from sim.max_min import shares

SEGMENT = 1460
"""Bytes of a TCP segment."""
INITIAL_WINDOW = 10 * SEGMENT
"""Bytes that a fresh connection may have under way (RFC 6928)."""
NEAR = 0.002
"""Round trip in seconds below which slow start is over before it is worth a thought."""
_FASTEST = 1e12
"""Bytes per second of a flow that nothing limits."""
_USES = 8
"""Resources that one flow passes, at most: its access lines, the link, and trunks."""
_NONE = 0
"""What a flow passes that passes fewer."""
_STEPS = 8
"""Windows grow at multiples of this part of the round trip, so that those of many flows grow at the same time."""

Resources = Sequence[tuple[Hashable, float]]


class Flow:
    """What one connection has to send in one direction.

    Args:
        resources: names what it shares, and how much there is of it, when asked; at most `_USES`.
        round_trip: its round-trip time in seconds, when asked.
        loss: its probability of loss, when asked.
        head: bytes until the next message is complete.
        passed: told the bytes that have passed.
        limit: bytes that may be under way at most, when asked.
    """

    def __init__(
        self,
        resources: Callable[[], Resources],
        round_trip: Callable[[], float],
        loss: Callable[[], float],
        head: Callable[[], float],
        passed: Callable[[float], None],
        limit: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.resources = resources
        self.round_trip = round_trip
        self.loss = loss
        self.limit = limit
        self.head = head
        self.passed = passed
        self.rate = 0.0
        self.busy = 0.0
        """Seconds in which something has passed."""
        self.held = 0.0
        """Of these, seconds at the most that its hosts keep for it; in the first round trip their buffers fill."""
        self.sent = 0.0
        """Bytes that have passed."""
        self.delivered = 0.0
        """The newest rate at which some did."""
        self.most, self.far = math.inf, 0.0
        """Bytes per second that this allows, and the round trip, as of the last look at the path."""
        self.began = 0.0
        """When it last had nothing to send before."""
        self.since = 0.0
        self.stopped = -math.inf
        self.open = True
        """Whether packets pass at all."""
        self.timer: asyncio.TimerHandle | None = None
        self.row = -1
        """Of the table of what is alike in all flows; none before it first starts."""
        self.looked = -1
        """As of which change of the world its path was looked at; -1 for never, or into another row."""


class Rows:
    """What each flow may have, a row each, so that one step of arithmetic does for thousands of flows."""

    def __init__(self) -> None:
        self.far = np.zeros(0)
        """The round trip, seconds, as of the last look at the path."""
        self.most = np.zeros(0)
        """Bytes per second by its losses and the hosts' buffers, or none if nothing passes."""
        self.window = np.zeros(0)
        """Bytes that may be under way."""
        self.cap = np.zeros(0)
        """Bytes per second by its losses and its window."""
        self.grown = np.zeros(0)
        """When the window last grew."""
        self.rate = np.zeros(0)
        self.armed = np.zeros(0, dtype=bool)
        """Whether its next arrival is arranged."""
        self.uses = np.zeros((0, _USES), dtype=np.intp)
        """The resources that it shares, by number; `_NONE` for none."""
        self.capacity = np.full(1, math.inf)
        """Of each resource; of `_NONE` there is enough for all."""
        self._numbers: dict[Hashable, int] = {None: _NONE}
        self._free: list[int] = []

    def take(self) -> int:
        """A row for a new flow."""
        if not self._free:
            self._extend()
        row = self._free.pop()
        self.window[row], self.rate[row], self.armed[row] = INITIAL_WINDOW, 0.0, False
        return row

    def begin(self, row: int, now: float, *, slowly: bool) -> None:
        """Let a flow send from now on, `slowly` with the window of a fresh connection."""
        self.grown[row] = now
        if slowly:
            self.window[row] = INITIAL_WINDOW
            self._limit(row)

    def free(self, row: int) -> None:
        """Take a row back."""
        self._free.append(row)

    def look(self, flow: Flow) -> None:
        """Ask what the path of a flow is like. It stays so until somebody tells `Fluid.changed`."""
        row, far, loss = flow.row, flow.round_trip(), flow.loss()
        self.far[row] = far
        lossy = 1.22 * SEGMENT / math.sqrt(loss) / max(far, 1e-4) if loss > 0 else math.inf
        flow.most, flow.far = flow.limit() / max(far, 1e-4), far
        self.most[row] = min(lossy, flow.most) if flow.open else 0.0
        self._limit(row)
        uses = [self._number(name, size) for name, size in flow.resources()]
        self.uses[row] = uses + [_NONE] * (_USES - len(uses))

    def shares(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """The fair rates of the flows in these rows."""
        caps, uses, capacity = self.cap[rows], self.uses[rows], self.capacity
        if (np.bincount(uses.ravel(), np.repeat(caps, _USES), len(capacity)) <= capacity).all():
            return np.minimum(caps, _FASTEST)  # a world at ease: every flow is held by its own window
        flow, place = np.nonzero(uses != _NONE)
        resource = uses[flow, place]
        if len(capacity) > 2 * len(resource):  # few flows in a large world
            names, resource = np.unique(resource, return_inverse=True)
            capacity = capacity[names]
        return np.minimum(shares(caps, flow, resource, capacity), _FASTEST)

    def grow(self, rows: npt.NDArray[np.intp], now: float) -> float:
        """Open the windows of the flows that fill them; give when to look again."""
        far = self.far[rows]
        far_off = far > NEAR
        rows, far = rows[far_off], far[far_off]
        filled = self.rate[rows] >= 0.999 * self.window[rows] / far
        rows, far = rows[filled], far[filled]
        due = now - self.grown[rows] >= far - 1e-9
        if due.any():
            rows = rows[due]
            self.window[rows] *= 2
            self.grown[rows] = now
            self.cap[rows] = np.minimum(self.most[rows], self.window[rows] / self.far[rows])
            return now
        step = far / _STEPS
        later = np.ceil((self.grown[rows] + far) / step) * step
        return float(later.min(initial=math.inf))

    def _limit(self, row: int) -> None:
        """Reckon what a flow may have by itself."""
        far, most = float(self.far[row]), float(self.most[row])
        self.cap[row] = min(most, float(self.window[row]) / far) if far > NEAR else most

    def _number(self, name: Hashable, size: float) -> int:
        number = self._numbers.setdefault(name, len(self._numbers))
        if number == len(self.capacity):
            self.capacity = np.append(self.capacity, size)
        self.capacity[number] = size
        return number

    def _extend(self) -> None:
        old = len(self.far)
        size = max(64, 2 * old)
        for name in ("far", "most", "window", "cap", "grown", "rate", "armed", "uses"):
            column = getattr(self, name)
            larger = np.zeros((size, *column.shape[1:]), dtype=column.dtype)
            larger[:old] = column
            setattr(self, name, larger)
        self._free = list(range(size - 1, old - 1, -1))
