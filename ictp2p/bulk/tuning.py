"""What a bulk connection asks of the kernel, chosen from what that tells (`kernel`): how to send, and how fast.

*Congestion control.* Where a round trip is short, cubic: bbr paces every packet by a timer, which costs a third of
the CPU on loopback and buys nothing in a rack. Where it is long, bbr: on 100 ms with 0.1 % loss one cubic stream kept
11 % of the line, bbr 74 %. The border is the delay of another city. A host that lacks either keeps its own choice. That
bbr is not to be had is said once in the log: most hosts have it, and keep it from who does not administrate them.

*Windows.* Where the way is long, a new connection has to find its rate before it knows it, and bbr calls it found when
three round trips in a row were no faster. The kernel's first windows then become the rate: a receiver that is woken by
256 KiB, behind a window of 64 KiB, has every round trip end in a closed window, and at 100 ms connections were seen to
stay at a tenth of the line for many seconds. A sender whose buffer is smaller than what bbr wants on its way in its
first seconds never gets past them. So a long way has its buffers widened at once, wake-ups are for less, and what has
not left yet is limited instead, for what is said next leaves after it. The kernel's tuning would take a wide buffer
back to its own limit (`tcp_sndbuf_expand` sets the lesser of the two, 4 MiB here), and a sender whose buffer is full of
what is on its way sends nothing: at a Gbit/s and 20 ms a quarter of the line lay idle. So it is left on only where it
can go further than we were allowed to.

Nor may the kernel ever run out of what to send. What bbr measures while there was nothing is not the line's rate, so a
connection that pauses once in every round trip stays in its start-up, with nearly three times the bandwidth-delay
product on its way: 400 MB over a Gbit/s and 100 ms, with a MiB of reserve (8 ms), took 4.6 s, and 3.6 with four. So who
has been seen to be fast gets a reserve for our pauses (`refill`), and a slow line no longer one than before.

*Pacing.* A rate is the kernel's to keep, packet by packet: several bbr connections over one line overfill its queue
together, each probing for more, and eight participants on access lines took 1.3 times the bound where each connection
was left to itself, 1.2 times where each was held near its planned rate.

Without a socket (a simulated network, a transport in memory) all of this does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import socket
import struct
import sys
from pathlib import Path

from ictp2p.bulk import kernel
from ictp2p.concurrency import logs

_log = logging.getLogger(__name__)

NEARBY = 0.005
"""Seconds of round trip up to which two hosts count as near: the light's way to another city and back."""
_NEAR_CONTROL, _FAR_CONTROL = b"cubic", b"bbr"
FAR_WINDOW = 16 * 1024 * 1024
"""Bytes that may be on their way where a round trip is long: a Gbit/s over 130 ms. A limit, nothing is allocated, and
the host may allow less (`net.core.wmem_max`), but to who may administrate its network."""
FAT = 1536 * 1024
"""Bytes on a long way from which on it may not be the line that bounds a connection: 100 Mbit/s over 120 ms. A probe of
8 MiB shows 140 of a Gbit/s over 100 ms."""
_USER_TIMEOUT = 300_000
"""Milliseconds for which the other end may have no room; `liveness` and `splice` see sooner whether it lives."""
UNSENT = 1024 * 1024
"""Bytes that the kernel keeps beyond what is on its way, at least; what is said next leaves after them."""
PAUSE = 0.03
"""Seconds without us that the kernel bridges with what it keeps: some chunks are sealed, added and hashed in one go."""
MOST_UNSENT = 4 * UNSENT
"""As much at a Gbit/s and more."""
SOON = 0.1
"""Seconds for which one of several connections takes chunks, of which each reacts to losses by itself."""
LITTLE = 64 * 1024
"""Bytes that it takes in any case."""
_SO_MAX_PACING_RATE = 47
"""include/uapi/asm-generic/socket.h, Linux 3.13 on, 64 bits wide since 5.0; Python has no name for it."""
_UNPACED = (1 << 64) - 1
_SO_SNDBUFFORCE = 32
"""include/uapi/asm-generic/socket.h: beyond the host's limit, for who has CAP_NET_ADMIN; Python has no name for it."""
_SO_BUF_LOCK = 72
"""include/uapi/asm-generic/socket.h, Linux 5.15 on; Python has no name for it."""


def reset(transport: asyncio.Transport) -> None:
    """Drop a connection so that the other end knows it (SO_LINGER of no time, socket(7)): what was sent may be lost.

    A socket that is merely closed, as `abort` does, ends like one whose owner has said all that it had to.
    """
    endpoint = kernel.tcp_socket(transport)
    if endpoint is not None:
        with contextlib.suppress(OSError):  # it is closed already
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def suit(transport: asyncio.Transport) -> None:
    """Choose the congestion control of a connection for the round trip that its handshake took."""
    endpoint, seconds = kernel.tcp_socket(transport), kernel.round_trip(transport)
    if endpoint is None or seconds is None:
        return
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # the kernel would end whom a relay before a slow line lets wait
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT)
    if hasattr(socket, "TCP_CONGESTION"):
        try:
            wanted = _NEAR_CONTROL if seconds <= NEARBY else _FAR_CONTROL
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, wanted)
        except OSError as error:  # not built in, or not for us
            if seconds > NEARBY and error.errno in (errno.ENOENT, errno.EPERM):
                _warn_of_losses()
    if seconds > NEARBY:
        _widen(endpoint)


def may_gain(transport: asyncio.Transport, rate: float) -> bool:
    """Say whether more connections may carry more than this one, which carries `rate` bytes/s.

    On a long way, where more has to be on its way at once than the host allows, or where its control takes every loss
    for a full line. With `FAR_WINDOW` bytes of buffer bbr needs no help, however little a short probe has shown: at a
    Gbit/s over 100 ms one connection moved 400 MB at 0.95 of the plan's bound, and four, each with its own, at 0.81.
    """
    seconds = kernel.least_trip(transport)
    if seconds <= NEARBY:
        return False
    if not kernel.control(transport).startswith(b"bbr"):
        return True
    return rate * seconds >= FAT and not _is_wide(transport)


def is_far(transport: asyncio.Transport) -> bool:
    """Say whether a round trip is long."""
    return kernel.least_trip(transport) > NEARBY


def _is_wide(transport: asyncio.Transport) -> bool:
    """Say whether our send buffer holds what we asked for on a long way."""
    endpoint = kernel.tcp_socket(transport)
    if endpoint is None:
        return False
    with contextlib.suppress(OSError):  # the connection has just gone
        return endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= FAR_WINDOW
    return False


def exceeds_buffers(transport: asyncio.Transport, rate: float) -> bool:
    """Say whether `rate` bytes/s are more than a send buffer that the host allows could have on their way.

    Then no buffer bounds it: who sends so has larger ones. The kernel doubles what is asked for, for its own needs. It
    is our host's limit that is looked at, for want of the sender's.
    """
    return rate * (kernel.round_trip(transport) or 0.0) > 2 * _tuned_up_to()


def refill(transport: asyncio.Transport, *, one_of_several: bool = False) -> int | None:
    """Have the kernel keep as much beyond what is on its way as bridges our pauses, at the rate that it has seen.

    One of several whose control takes losses for a full line may be slow at any time, whatever the line: it takes no
    more than it sends soon, for what it holds another one could send.

    Returns:
        The bytes that a transport should hold at most, if it is such a one.
    """
    rate = _delivered(transport)
    if rate is None:
        return None
    yields = one_of_several and not kernel.control(transport).startswith(b"bbr")
    kept = min(unsent(rate), max(LITTLE, int(SOON * rate))) if yields else unsent(rate)
    endpoint = kernel.tcp_socket(transport)
    with contextlib.suppress(OSError):  # the connection has just gone
        if endpoint is not None:
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, kept)
    return kept if yields else None


def _delivered(transport: asyncio.Transport) -> float | None:
    """Give the bytes/s that were seen of late over a long way; None over a short one, or if nobody says."""
    endpoint = kernel.tcp_socket(transport)
    if endpoint is None:
        return transport.get_extra_info("delivered") if is_far(transport) else None
    info = kernel.tcp_info(endpoint)
    rate = kernel.delivery_rate(info)
    return None if rate is None or kernel.least_trip_of(info) <= NEARBY else rate


def unsent(rate: float) -> int:
    """Give the bytes to keep beyond what is on its way over a long way, at `rate` bytes/s."""
    return int(min(max(UNSENT, PAUSE * rate), MOST_UNSENT))


def pace(transport: asyncio.Transport, rate: float | None) -> bool:
    """Have the kernel send at most `rate` bytes/s, headers included; None: as fast as it goes. Say whether it does."""
    endpoint = kernel.tcp_socket(transport)
    if endpoint is None or not sys.platform.startswith("linux"):
        return False
    limit = _UNPACED if rate is None else max(1, int(rate))
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, limit.to_bytes(8, sys.byteorder))
    except OSError:
        return False
    return True


def _widen(endpoint: socket.socket) -> None:
    """Let more be on its way than the kernel allows a new connection."""
    low = endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    with contextlib.suppress(OSError):
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, FAR_WINDOW)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)
    with contextlib.suppress(OSError, AttributeError):
        endpoint.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, 0)  # a kernel that lacks this could not be unlocked again
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FAR_WINDOW)
        with contextlib.suppress(PermissionError):
            endpoint.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, FAR_WINDOW)
        if endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < _tuned_up_to():
            endpoint.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, 0)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)


@functools.cache
def _warn_of_losses() -> None:
    """Say once what is missing, and who can change it."""
    logs.warning(
        _log,
        "this host lets us use bbr for no connection, so that losses on long ways cost most of their line; let its "
        "administrator run: modprobe tcp_bbr; sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'",
    )


@functools.cache
def _tuned_up_to() -> int:
    """Give the most bytes that the kernel's tuning lets a connection's send buffer have."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
    return sys.maxsize
