"""Bandwidth as a fluid: every bulk flow gets its max-min fair share of the resources that it passes.

A flow is what one connection has queued in one direction. Shares are computed by progressive filling (Bertsekas and
Gallager, "Data Networks", 6.5.2): all flows grow together until a resource is full, whose flows are then frozen, and
so on; those that want less than an even part of everything that they pass are frozen first, all in one step. Flows
start slowly: a flow may send no more than its congestion window per round trip, ten segments at first and twice as much
after each round trip. Where packets are lost it may not exceed what Mathis et al. (1997) found, and starts slowly again
after a rest; else it is taken for bbr's, which keeps its window. Nor does it ever exceed what its hosts keep for it.

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
_FASTEST = 1e12
"""Bytes per second of a flow that nothing limits."""
_USES = 8
"""Resources that one flow passes, at most: its access lines, the link, and trunks."""
_NONE = 0
"""What a flow passes that passes fewer."""
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
    count, resources = len(caps), len(capacity)
    rates, left = np.zeros(count), capacity.astype(float)
    endless, active = np.isinf(left), np.ones(count, dtype=bool)
    while active.any():
        live = active[flow]
        by, of = flow[live], resource[live]
        users = np.bincount(of, minlength=resources)
        used = users > 0
        level = np.full(resources, math.inf)
        level[used] = left[used] / users[used]
        fair = np.full(count, math.inf)
        np.minimum.at(fair, by, level[of])
        limit = np.where(active, caps, 0.0) - np.where(active, rates, 0.0)
        # No resource is full before each of its users has an even part of what is left: who wants no more gets it.
        done = active & (limit <= fair)
        if np.array_equal(done, active):  # of a world at ease, at once: every flow is held by its own window
            return np.where(done, caps, rates)
        grown = np.where(done, limit, 0.0) if done.any() else np.where(active, level.min(), 0.0)
        rates = np.where(done, caps, rates + grown)
        taken = np.bincount(of, weights=grown[by], minlength=resources)
        left = np.where(endless, math.inf, np.maximum(left - np.where(endless, 0.0, taken), 0.0))
        if not done.any():
            full = used & (left <= 1e-9 * capacity + 1e-9)
            done[by[full[of]]] = True
        active &= ~done
    return rates


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


class _Rows:
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


class Fluid:
    """All flows of a world."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._flows: dict[Flow, int] = {}
        """Those that have something to send, and their rows."""
        self._passed: dict[Flow, None] = {}
        """Those of which something has passed since rates were last computed: they may have come to their end."""
        self._rows = _Rows()
        self._changes = 0
        """How often capacities or paths changed."""
        self._context = contextvars.Context()
        self._pending: asyncio.TimerHandle | None = None

    def start(self, flow: Flow) -> None:
        """Let a flow have its share; it stops by itself once `head` says that nothing is left."""
        if flow in self._flows:
            return
        if flow.row < 0:
            flow.row, flow.looked = self._rows.take(), -1
        flow.since = flow.began = now = self._loop.now
        self._rows.begin(flow.row, now, slowly=now - flow.stopped > IDLE and flow.loss() > 0)
        self._look(flow)
        self._flows[flow] = flow.row
        self._stir()

    def changed(self) -> None:
        """Capacities or paths changed: look at them, and compute rates anew, soon."""
        self._changes += 1
        for flow in self._flows:
            self._look(flow)
        self._stir()

    def _look(self, flow: Flow) -> None:
        """See what the path of a flow is like, unless that was seen since anything changed."""
        if flow.looked != self._changes:
            flow.looked = self._changes
            self._rows.look(flow)

    def _stir(self) -> None:
        """Compute rates anew, soon."""
        if self._pending is None:
            self._pending = self._loop.at(self._loop.now + COALESCE, self._solve, context=self._context)

    def drop(self, flow: Flow) -> None:
        """Forget a flow: its connection has ended."""
        if flow in self._flows:
            self._remove(flow)
            self._stir()
        if flow.row >= 0:
            self._rows.free(flow.row)
            flow.row = -1

    def __len__(self) -> int:
        return len(self._flows)

    def _remove(self, flow: Flow) -> None:
        del self._flows[flow]
        self._passed.pop(flow, None)
        self._disarm(flow)

    def _solve(self) -> None:
        self._pending = None
        now = self._loop.now
        self._end_the_empty(now)
        if not self._flows:
            return
        flows = list(self._flows)
        rows = np.fromiter(self._flows.values(), np.intp, len(flows))
        rates = self._rows.shares(rows)
        # Of all whose rate stays what was arranged still holds.
        stirred = (rates != self._rows.rate[rows]) | ~self._rows.armed[rows]
        self._rows.rate[rows] = rates
        for index in np.flatnonzero(stirred).tolist():
            flow = flows[index]
            self._settle(flow)
            flow.rate = float(rates[index])
            self._arm(flow)
        again = self._rows.grow(rows, now)
        if again < math.inf and self._pending is None:
            self._pending = self._loop.at(max(again, now + COALESCE), self._solve, context=self._context)

    def _end_the_empty(self, now: float) -> None:
        """Take out the flows that have nothing left to send."""
        passed, self._passed = self._passed, {}
        for flow in passed:
            if flow.head() <= 0:
                self._remove(flow)
                flow.rate, flow.stopped = 0.0, now
                self._rows.rate[flow.row] = 0.0

    def _settle(self, flow: Flow) -> None:
        """Account for what has passed since the last look."""
        now = self._loop.now
        before, flow.since = flow.since, now
        if (size := flow.rate * (now - before)) > 0:
            flow.busy += now - before
            flow.sent += size
            flow.delivered = flow.rate
            if flow.rate >= flow.most:
                flow.held += max(0.0, now - max(before, flow.began + flow.far))
            self._passed[flow] = None
            flow.passed(size)

    def _arm(self, flow: Flow) -> None:
        if flow.timer is not None:
            self._disarm(flow)
        left = flow.head()
        if left <= 0:
            self._stir()  # all of it has passed just as rates change: it ends, or goes on with what came since
        elif flow.rate > 0:
            due = self._loop.now + min(TICK, max(RESOLUTION, left / flow.rate))
            flow.timer = self._loop.at(due, self._tick, flow, context=self._context)
            self._rows.armed[flow.row] = True

    def _disarm(self, flow: Flow) -> None:
        if flow.timer is not None:
            flow.timer.cancel()
            flow.timer = None
            self._rows.armed[flow.row] = False

    def _tick(self, flow: Flow) -> None:
        flow.timer = None
        self._rows.armed[flow.row] = False
        self._settle(flow)
        if flow.head() > 0:
            self._arm(flow)
        else:
            self._stir()
