"""What a connection that has rested needs before it sends again, so that it goes on at the rate that it had.

An outer round comes after minutes of computing, and finds connections that are warm and yet begin anew. Two things in
the kernel were seen to make a transfer of two seconds a tenth to a quarter longer, with 12 s of rest before it:

*Slow start after idle.* Who has sent nothing for a retransmission timeout begins at ten segments (RFC 5681, section
4.1). Without queues that is over in a few round trips; but both directions are used at once, and whose acknowledgements
wait in the queue of the other direction doubles once in 100 ms and not in 0.1 ms. The kernel spares who sets a rate by
itself, as bbr does (`tcp_slow_start_after_idle_check`). So another congestion control hands the connection to bbr for
the first that is sent, and gets it back right after that. What it then knows of the line is its window; it searches on
from there by delay (HyStart), and a loss halves it as ever.

*bbr's search for the least round trip.* A value older than 10 s is measured again: four packets on their way for 200 ms
(`bbr_update_min_rtt`). One acknowledgement after a rest would renew it at no cost, but not that of a lone packet
shorter than a segment, for it may have been held back (`FLAG_ACK_MAYBE_DELAYED`): the search then falls on what comes
next. Our first message is such a packet. So it is made two segments long, which a receiver acknowledges at once.

A host without bbr, or one that does not let us choose it, keeps what it has. So does another system than Linux, and a
connection without a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from ictp2p.bulk import kernel

REST = 0.2
"""Seconds, Linux's least retransmission timeout: after less silence no connection has rested."""
RELAYED = 2 * 1460
"""Bytes of a first message that a relay passes on: we cannot see whether its own connection onward has rested."""
_SEGMENTS = 2
_INFO = struct.Struct("=8xI4xI24xI")  # in struct tcp_info: timeout in microseconds, segment, milliseconds silent
_RATED = b"bbr"


def wake(transport: asyncio.Transport) -> int:
    """Prepare a connection for what is sent next; to be called right before that.

    Returns:
        The bytes that this should have at least; 0 if it may be as short as it is.
    """
    endpoint = kernel.tcp_socket(transport)
    if endpoint is None:
        return 0
    with contextlib.suppress(OSError, struct.error):  # the connection has just gone
        timeout, segment, silence = _INFO.unpack_from(kernel.tcp_info(endpoint))
        if silence * 1000 <= timeout:
            return 0
        control = endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
        if control == _RATED:
            return _SEGMENTS * int(segment)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _RATED)
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, _hand_back, transport, endpoint, control)  # uvloop writes between the two
    return 0


def _hand_back(transport: asyncio.Transport, endpoint: socket.socket, control: bytes) -> None:
    if not transport.is_closing():
        with contextlib.suppress(OSError):
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control)
