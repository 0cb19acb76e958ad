"""Whether several connections would carry more than these, as the kernel has kept account of what held them back.

*Buffers.* A connection has no more bytes on their way than our host's buffer holds: Linux's 4 MiB are 3 Gbit/s over 10
ms and 300 Mbit/s over 100, whatever the line carries. The kernel counts for how long a connection had something on its
way, and for how much of that it would have sent more, had the buffer held more (`tcp_info`: `tcpi_busy_time` and
`tcpi_sndbuf_limited`, since Linux 4.9). So no trial is needed, and what is judged are transfers that somebody wanted.
Another connection has a buffer of its own.

A buffer also bounds who fills a line whose queue is deeper than it. More connections would only lengthen that queue;
but there round trips take longer than the least one that was seen, and that is asked too. What the other end's buffer
held back (`tcpi_rwnd_limited`) does not count: it is full where somebody reads slowly too, whom more would not help.

*Losses.* Most hosts have cubic alone for who does not administrate them, and cubic, as reno, takes each loss for a full
line: over 100 ms a loss in a thousand packets leaves it 4 Mbit/s, of whatever line. Each of several connections has its
own losses, so as many times as much passes (MulTCP: Crowcroft and Oechslin, CCR 28 (1998), 53). That losses are the
bound is seen by the window: it is about what RFC 9438 (section 5.1) says that such losses leave, and who has little to
send has less. A line that is full loses too. But its queue shows in round trips, as TCP Veno tells the two apart (Fu
and Liew, JSAC 21 (2003), 216), if it has one that is worth its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ictp2p.bulk.account import Account

LONG = 0.5
"""Seconds at work, of each connection, from which on it is judged: some round trips, beyond what opens a window."""
MOSTLY = 0.5
"""Part of its time at work for which its buffer has to have held a connection back: with it, as many again carry 1.5
times as much at least."""
QUEUED = 1.5
"""Times the least round trip, from which on there is a queue."""
CUBIC, RENO = 1.054, 1.22
"""Of the windows that a loss rate leaves (RFC 9438, section 5.1; Mathis et al., CCR 27 (1997), 67)."""
LOSSES = 3
"""Packets lost from which on it is asked whether losses are the bound."""
USED = 1 / 3
"""Part of the window that losses leave, from which on it is they that bound it. Measured at 0.7 to 1.6."""


class Connection(Protocol):
    """What is asked of a connection, which may have ended."""

    @property
    def account(self) -> Account | None:
        """What the kernel has counted since it began, if it counts."""
        ...


class Headroom:
    """Judges the connections to one peer, by all that goes over them."""

    def __init__(self) -> None:
        self._before: dict[Connection, Account] = {}
        """As of the last judgement."""
        self._lost = self._packets = 0.0
        """Since more were wanted because of losses, or a queue was seen."""

    def lacking(self, connections: Sequence[Connection]) -> bool:
        """Say whether buffers, for most of the time since the last judgement, or losses have held these back.

        Nothing is judged before all have had enough to do. What was not there then is judged from its beginning on.
        """
        accounts = {each: account for each in connections if (account := each.account) is not None}
        spent = [now.since(self._before.get(each)) for each, now in accounts.items()]
        if not spent or min(each.busy for each in spent) < LONG:
            return False
        self._before = accounts
        if any(each.round_trips >= QUEUED for each in spent):
            self._lost = self._packets = 0.0  # of a full line
            return False
        self._lost += sum(each.lost for each in spent)
        self._packets += sum(each.packets for each in spent)
        if sum(each.held for each in spent) >= MOSTLY * sum(each.busy for each in spent):
            return True
        if self._lost < LOSSES or not self._bound_by_losses(spent):
            return False
        self._lost = self._packets = 0.0
        return True

    def forget(self, connection: Connection) -> None:
        """One has ended. The others go on from where they were: what once held them back was judged then."""
        self._before.pop(connection, None)

    def _bound_by_losses(self, spent: Sequence[Account]) -> bool:
        """Say whether windows are about as large as the losses leave them."""
        rate = self._lost / max(self._packets, 1.0)
        windows = [each.packets * each.seconds / each.busy for each in spent]
        left = [max(CUBIC * (each.seconds / rate) ** 0.75, RENO / rate**0.5) for each in spent]
        return bool(sum(windows) >= USED * sum(left))
