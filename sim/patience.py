"""What a kernel does about a connection whose path has gone dark: keep, try again, and give up in the end.

Something that stays unacknowledged for `USER_TIMEOUT` ends the connection, and so does silence on an idle one after
`KEEPALIVE`; the numbers are those that `edge.network` asks the kernel for. What is sent into the dark is kept and
leaves when TCP next tries, whose pauses double (RFC 6298, section 5.5), not at once when the path is back.

Where acknowledgments alone are lost, as on a path that is cut the other way, what is sent arrives at first. After its
first timeout TCP repeats its oldest packet, and sends nothing else until that is acknowledged (RFC 5681, section 3.1).
So who is not heard from falls silent, too, on the connections that stand.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from sim.internet import RTO, Internet

if TYPE_CHECKING:
    from sim.connection import Endpoint

USER_TIMEOUT = 15.0
"""Seconds for which something may stay unacknowledged."""
KEEPALIVE_IDLE = 10.0
"""Seconds after which an idle connection is probed."""
KEEPALIVE = 25.0
"""Seconds after which an idle connection over a dead path is noticed."""


class Patience:
    """Of the kernel at one end.

    Args:
        internet: where.
        end: whose.
    """

    def __init__(self, internet: Internet, end: Endpoint) -> None:
        self.size = 0
        """Bytes that were sent into the dark."""
        self.unacknowledged = 0
        """Bytes that were sent since the path went dark, whichever way it did."""
        self._net = internet
        self._loop = internet.loop
        self._end = end
        self.choked = False
        """Whether nothing new is sent, for want of acknowledgments."""
        self._withheld: deque[tuple[str, Any, int]] = deque()
        self._dark_since: float | None = None
        self._unacknowledged_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._choking: asyncio.TimerHandle | None = None
        self.dark = self._is_dark()
        """Whether what is sent, or its acknowledgment, vanishes, as of the last change of any path."""

    @property
    def withholds(self) -> bool:
        """Whether something was sent into the dark."""
        return bool(self._withheld)

    def withhold(self, what: str, data: Any, size: int) -> None:
        """Keep what was sent into the dark."""
        self._withheld.append((what, data, size))
        self.size += size

    def sent(self, size: int) -> None:
        """Something was sent into the dark: an acknowledgment is waited for."""
        self.unacknowledged += size
        if self._unacknowledged_since is None:
            self._begin()
            self._wait()

    def path_changed(self, *, busy: bool) -> None:
        """Something was cut or mended somewhere; `busy`: something is under way."""
        self.dark = self._is_dark()
        if self.dark and self._dark_since is None:
            self._dark_since = self._loop.now
            if busy or self._withheld:
                self._begin()
            self._wait()
        elif not self.dark and self._dark_since is not None:
            self._relieved(self._dark_since)

    def drop(self) -> None:
        """Forget what was kept."""
        self._withheld.clear()
        self.size = 0

    def rest(self) -> None:
        """Wait for nothing any more."""
        for timer in (self._timer, self._choking):
            if timer is not None:
                timer.cancel()
        self._timer = self._choking = None

    def _begin(self) -> None:
        """From now on something is unacknowledged."""
        self._unacknowledged_since = self._loop.now
        if self._choking is None and not self.choked:
            self._choking = self._loop.at(self._loop.now + self._timeout(), self._choke)

    def _choke(self) -> None:
        self._choking, self.choked = None, True
        self._end.choke()

    def _timeout(self) -> float:
        return max(RTO, 1.5 * self._net.round_trip(self._end.local, self._end.remote))

    def _is_dark(self) -> bool:
        here, there = self._end.local, self._end.remote
        lost = self._end.swallowed or self._end.forgotten
        return lost or self._net.blocked(here, there) or self._net.blocked(there, here)

    def _relieved(self, since: float) -> None:
        """The path is back: what was withheld leaves when TCP next tries."""
        self._dark_since = self._unacknowledged_since = None
        self.unacknowledged = 0
        self.choked = False
        self.rest()
        if not self._end.peer.process.alive:
            self._end.reset_in(KEEPALIVE_IDLE if not self._withheld else RTO)
        elif self._withheld:
            pause = self._timeout()
            due = since + pause
            while due < self._loop.now:
                pause *= 2
                due += pause
            self._loop.at(due, self._release, context=self._end.process.context)

    def _release(self) -> None:
        if self._end.gone or self._net.blocked(self._end.local, self._end.remote):
            return
        withheld, self._withheld = self._withheld, deque()
        self.size = 0
        for item in withheld:
            self._end.dispatch(*item)
        self._end.drained()

    def _wait(self) -> None:
        """Set the time at which this side's kernel gives the connection up."""
        if self._timer is not None:
            self._timer.cancel()
        if self._dark_since is None:
            self._dark_since = self._loop.now
        due = self._dark_since + KEEPALIVE
        if self._unacknowledged_since is not None:
            due = min(due, self._unacknowledged_since + USER_TIMEOUT)
        self._timer = self._loop.at(max(due, self._loop.now), self._give_up, context=self._end.process.context)

    def _give_up(self) -> None:
        self._timer = None
        self._end.given_up()
