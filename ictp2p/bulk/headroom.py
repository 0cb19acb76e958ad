"""Whether several connections would carry more than these, as the kernel has kept account of what held them back.

A connection has no more bytes on their way than our host's buffer holds: Linux's 4 MiB are 3 Gbit/s over 10 ms and 300
Mbit/s over 100, whatever the line carries. The kernel counts for how long a connection had something on its way, and
for how much of that it would have sent more, had the buffer held more (`tcp_info`: `tcpi_busy_time` and
`tcpi_sndbuf_limited`, since Linux 4.9). So no trial is needed, and what is judged are transfers that somebody wanted.
Another connection has a buffer of its own.

A buffer also bounds who fills a line whose queue is deeper than it. More connections would only lengthen that queue;
but there round trips take longer than the least one that was seen, and that is asked too. What the other end's buffer
held back (`tcpi_rwnd_limited`) does not count: it is full where somebody reads slowly too, whom more would not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ictp2p.bulk import tuning

LONG = 0.5
"""Seconds at work, of each connection, from which on it is judged: some round trips, beyond what opens a window."""
MOSTLY = 0.5
"""Part of its time at work for which its buffer has to have held a connection back: with it, as many again carry 1.5
times as much at least."""
QUEUED = 1.5
"""Times the least round trip, from which on there is a queue."""


class Connection(Protocol):
    """What is asked of a connection, which may have ended."""

    @property
    def account(self) -> tuning.Account | None:
        """What the kernel has counted since it began, if it counts."""
        ...


class Headroom:
    """Judges the connections to one peer, by all that goes over them."""

    def __init__(self) -> None:
        self._before: dict[Connection, tuning.Account] = {}
        """As of the last judgement."""

    def lacking(self, connections: Sequence[Connection]) -> bool:
        """Say whether buffers have held these back for most of the time since the last judgement.

        Nothing is judged before all have had enough to do. What was not there then is judged from its beginning on.
        """
        accounts = {each: account for each in connections if (account := each.account) is not None}
        spent = [now.since(self._before.get(each)) for each, now in accounts.items()]
        if not spent or min(each.busy for each in spent) < LONG:
            return False
        self._before = accounts
        queued = any(now.round_trips >= QUEUED for now in accounts.values())
        return sum(each.held for each in spent) >= MOSTLY * sum(each.busy for each in spent) and not queued

    def forget(self, connection: Connection) -> None:
        """One has ended. The others go on from where they were: what once held them back was judged then."""
        self._before.pop(connection, None)
