"""Bandwidth as a fluid: every bulk flow gets its max-min fair share of the resources that it passes.

A flow is what one connection has queued in one direction. Shares are computed by progressive filling (Bertsekas and
Gallager, "Data Networks", 6.5.2): all flows grow together until a resource is full, whose flows are then frozen, and
so on. Flows start slowly: a flow may send no more than its congestion window per round trip, ten segments at first
and twice as much after each round trip; where packets are lost it may not exceed what Mathis et al. (1997) found.

Rates are computed when flows start or stop or capacities change, and not more often than every `COALESCE` seconds.
In between everything is linear, so that nothing happens but the arrival of what the protocols will read.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from sim.loop import SimLoop

COALESCE = 0.001
"""Seconds in which several changes count as one."""
TICK = 0.25
"""Seconds after which the part of a large message that has passed is delivered."""
RESOLUTION = 1e-6
"""Seconds between two looks at one flow, at least: a rounding error of a byte must not stop the clock."""
SEGMENT = 1460
"""Bytes of a TCP segment."""
INITIAL_WINDOW = 10 * SEGMENT
"""Bytes that a fresh connection may have under way (RFC 6928)."""
IDLE = 1.0
"""Seconds without sending after which a connection starts slowly again (RFC 5681, section 4.1)."""
NEAR = 0.002
"""Round trip in seconds below which slow start is over before it is worth a thought."""
_STEPS = 8
"""Windows grow at multiples of this part of the round trip, so that those of many flows grow at the same time."""

Resources = Sequence[tuple[Hashable, float]]


def shares(
    caps: npt.NDArray[np.float64],
    flow: npt.NDArray[np.intp],
    resource: npt.NDArray[np.intp],
    capacity: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Max-min fair rates.

    Args:
        caps: of each flow, what it may have at most; infinite for none.
        flow: of each use of a resource, the flow.
        resource: of each use of a resource, the resource.
        capacity: of each resource.
    """
    count = len(caps)
    rates = np.zeros(count)
    active = np.ones(count, dtype=bool)
    left = capacity.astype(float).copy()
    while active.any():
        live = active[flow]
        users = np.bincount(resource[live], minlength=len(left))
        used = users > 0
        level = np.full(len(left), math.inf)
        level[used] = left[used] / users[used]
        limit = caps - rates
        grow = min(level.min(initial=math.inf), limit[active].min(initial=math.inf))
        if grow == math.inf:
            rates[active] = math.inf
            break
        rates[active] += grow
        left -= users * grow
        full = used & (left < math.inf) & (left <= 1e-9 * capacity + 1e-9)
        done = active & (caps - rates <= 1e-9 * np.maximum(1.0, rates))
        done[flow[live & full[resource]]] = True
        active &= ~done
    return rates


class Flow:
    """What one connection has to send in one direction.

    Args:
        resources: names what it shares, and how much there is of it, when asked.
        round_trip: its round-trip time in seconds, when asked.
        loss: its probability of loss, when asked.
        head: bytes until the next message is complete.
        passed: told the bytes that have passed.
    """

    def __init__(
        self,
        resources: Callable[[], Resources],
        round_trip: Callable[[], float],
        loss: Callable[[], float],
        head: Callable[[], float],
        passed: Callable[[float], None],
    ) -> None:
        self.resources = resources
        self.round_trip = round_trip
        self.loss = loss
        self.head = head
        self.passed = passed
        self.rate = 0.0
        self.window = float(INITIAL_WINDOW)
        self.grown = 0.0
        self.since = 0.0
        self.stopped = -math.inf
        self.open = True
        """Whether packets pass at all."""
        self.timer: asyncio.TimerHandle | None = None
        self.far = 0.0
        """The round trip, seconds, as of the last look at the path."""
        self.shared: Resources = ()
        """The resources, as of then."""
        self._mathis = math.inf

    def look(self) -> None:
        """Ask what the path is like. It stays so until somebody tells `Fluid.changed`."""
        self.far, self.shared = self.round_trip(), self.resources()
        loss = self.loss()
        self._mathis = 1.22 * SEGMENT / (max(self.far, 1e-4) * math.sqrt(loss)) if loss > 0 else math.inf

    def cap(self) -> float:
        """What it may have at most, however much there is."""
        if not self.open:
            return 0.0
        return min(self._mathis, self.window / self.far if self.far > NEAR else math.inf)


class Fluid:
    """All flows of a world."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._flows: dict[Flow, None] = {}
        self._context = contextvars.Context()
        self._pending: asyncio.TimerHandle | None = None
        self.solved = 0
        """How often rates were computed."""

    def start(self, flow: Flow) -> None:
        """Let a flow have its share; it stops by itself once `head` says that nothing is left."""
        if flow in self._flows:
            return
        now = self._loop.now
        if now - flow.stopped > IDLE:
            flow.window = float(INITIAL_WINDOW)
        flow.since = flow.grown = now
        flow.look()
        self._flows[flow] = None
        self._stir()

    def changed(self) -> None:
        """Capacities or paths changed: look at them, and compute rates anew, soon."""
        for flow in self._flows:
            flow.look()
        self._stir()

    def _stir(self) -> None:
        """Compute rates anew, soon."""
        if self._pending is None:
            self._pending = self._loop.at(self._loop.now + COALESCE, self._solve, context=self._context)

    def drop(self, flow: Flow) -> None:
        """Forget a flow: its connection has ended."""
        if flow in self._flows:
            del self._flows[flow]
            self._disarm(flow)
            self._stir()

    def __len__(self) -> int:
        return len(self._flows)

    def _solve(self) -> None:
        self._pending = None
        self.solved += 1
        now = self._loop.now
        for flow in list(self._flows):
            if flow.head() <= 0:
                flow.rate, flow.stopped = 0.0, now
                del self._flows[flow]
                self._disarm(flow)
        again = math.inf
        for flow, rate in self._share():
            if rate != flow.rate or flow.timer is None:  # of all others what was arranged still holds
                self._settle(flow)
                flow.rate = rate
                self._arm(flow)
            again = min(again, self._grow(flow, now))
        if again < math.inf and self._pending is None:
            self._pending = self._loop.at(max(again, now + COALESCE), self._solve, context=self._context)

    def _share(self) -> list[tuple[Flow, float]]:
        """Every flow's fair rate."""
        flows = list(self._flows)
        if not flows:
            return []
        index: dict[Hashable, int] = {}
        capacity: list[float] = []
        uses: list[tuple[int, int]] = []
        for number, flow in enumerate(flows):
            for name, size in flow.shared:
                if name not in index:
                    index[name] = len(capacity)
                    capacity.append(size)
                uses.append((number, index[name]))
        pairs = np.array(uses, dtype=np.intp).reshape(-1, 2)
        rates = shares(np.array([f.cap() for f in flows]), pairs[:, 0], pairs[:, 1], np.array(capacity))
        return [(flow, min(rate, 1e12)) for flow, rate in zip(flows, rates.tolist(), strict=True)]

    def _grow(self, flow: Flow, now: float) -> float:
        """Open the window of a flow that fills it; give when to look again."""
        round_trip = flow.far
        if round_trip <= NEAR or flow.rate < 0.999 * flow.window / round_trip:
            return math.inf
        if now - flow.grown >= round_trip - 1e-9:
            flow.window *= 2
            flow.grown = now
            return now
        step = round_trip / _STEPS
        return math.ceil((flow.grown + round_trip) / step) * step

    def _settle(self, flow: Flow) -> None:
        """Account for what has passed since the last look."""
        now = self._loop.now
        size, flow.since = flow.rate * (now - flow.since), now
        if size > 0:
            flow.passed(size)

    def _arm(self, flow: Flow) -> None:
        self._disarm(flow)
        left = flow.head()
        if flow.rate > 0 and left > 0:
            due = self._loop.now + min(TICK, max(RESOLUTION, left / flow.rate))
            flow.timer = self._loop.at(due, self._tick, flow, context=self._context)

    def _disarm(self, flow: Flow) -> None:
        if flow.timer is not None:
            flow.timer.cancel()
            flow.timer = None

    def _tick(self, flow: Flow) -> None:
        flow.timer = None
        self._settle(flow)
        if flow.head() > 0:
            self._arm(flow)
        else:
            self._stir()
