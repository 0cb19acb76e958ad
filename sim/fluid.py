"""Bandwidth as a fluid: every bulk flow gets its max-min fair share of the resources that it passes.

A flow is what one connection has queued in one direction: what it may have by itself is in `flows`, what is left to it
by others in `max_min`. Rates are computed when flows start or stop or capacities change, and not more often than every
`COALESCE` seconds. In between everything is linear, so that nothing happens but the arrival of what the protocols will
read.
"""

from __future__ import annotations

import asyncio
import contextvars
import math

import numpy as np

from sim.flows import Flow, Rows
from sim.loop import SimLoop

COALESCE = 0.001
"""Seconds in which several changes count as one."""
TICK = 0.25
"""Seconds after which the part of a large message that has passed is delivered."""
RESOLUTION = 1e-6
"""Seconds between two looks at one flow, at least: a rounding error of a byte must not stop the clock."""
IDLE = 1.0
"""Seconds without sending after which a connection starts slowly again (RFC 5681, section 4.1)."""


class Fluid:
    """All flows of a world."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._flows: dict[Flow, int] = {}
        """Those that have something to send, and their rows."""
        self._passed: dict[Flow, None] = {}
        """Those of which something has passed since rates were last computed: they may have come to their end."""
        self._rows = Rows()
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
