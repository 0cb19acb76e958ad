"""What the kernel has counted of a connection over a long way since it began (`tcp_info`, Linux 4.9 on).

A transport without a socket may count by itself (`get_extra_info`: "account", the fields of `Account` in turn).
"""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple

from ictp2p.bulk import kernel, tuning

_TIMES = struct.Struct("=Q8xQ")  # microseconds at work, and of these in which our send buffer was the bound
_TIMES_AT = 168  # in struct tcp_info, include/uapi/linux/tcp.h
_PACKETS = struct.Struct("=I52xI")  # sent again; sent with data
_PACKETS_AT = 100


class Account(NamedTuple):
    """What was counted."""

    busy: float
    """Seconds with something on its way."""
    held: float
    """Of these, seconds in which more would have been, had our send buffer held more."""
    round_trips: float
    """Times the least round trip that it has seen, what round trips take of late."""
    seconds: float
    """What round trips take of late."""
    packets: float
    """Sent, with data."""
    lost: float
    """Of these, sent again by a control that takes each loss for a full line; none by bbr, which does not."""

    def since(self, before: Account | None) -> Account:
        """Give what was counted since then; all of it if there was nothing before."""
        if before is None:
            return self
        return self._replace(
            busy=self.busy - before.busy,
            held=self.held - before.held,
            packets=self.packets - before.packets,
            lost=self.lost - before.lost,
        )


def account(transport: asyncio.Transport) -> Account | None:
    """Give what the kernel has counted of a connection over a long way, if it counts."""
    endpoint = kernel.tcp_socket(transport)
    if endpoint is None:
        said: tuple[float, ...] | None = transport.get_extra_info("account")
        return None if said is None else Account(*said)
    info = kernel.tcp_info(endpoint)
    if len(info) < _TIMES_AT + _TIMES.size:
        return None
    smoothed, least = kernel.round_trips(info)
    if least <= tuning.NEARBY * 1e6:
        return None
    busy, held = _TIMES.unpack_from(info, _TIMES_AT)
    lost, packets = _PACKETS.unpack_from(info, _PACKETS_AT)
    if kernel.control(transport).startswith(b"bbr"):
        lost = 0
    return Account(busy / 1e6, held / 1e6, smoothed / least, smoothed / 1e6, packets, lost)
