"""What the kernel tells of a connection: how long its way is, what is on it, and whether the other end has room.

It may know less than is asked for here, and nothing of a connection that has just gone. A transport without a socket (a
simulated network, one in memory) may say by itself what its way is like (`get_extra_info`: "round_trip" in seconds,
"congestion" the control's name, as bytes, "delivered" the bytes/s seen of late, "unacknowledged" the bytes that its far
end has not said are there, "full" whether that has no room).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys

if sys.platform == "linux":
    import fcntl
    import termios

JUMBO = 9000
"""Bytes of the largest packets that hosts agree on in practice."""
_SEGMENT = struct.Struct("=16xI")  # in struct tcp_info: bytes of ours in one packet
_USUAL = 1448
"""The same of an Ethernet packet."""
_ROUND_TRIPS = struct.Struct("=I76xI")  # smoothed and least one, in microseconds
_ROUND_TRIPS_AT = 68  # in struct tcp_info, include/uapi/linux/tcp.h
_BACKLOG = struct.Struct("=24xI116xI80xI")  # packets on their way; bytes not sent; the window, since Linux 5.4
_DELIVERY = struct.Struct("=Q")  # bytes/s, the newest that the application did not limit, or a greater one
_DELIVERY_AT = 160


def tcp_socket(transport: asyncio.Transport) -> socket.socket | None:
    """Give the socket of a connection, if it is TCP."""
    endpoint: socket.socket | None = transport.get_extra_info("socket")
    if endpoint is None or endpoint.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    return endpoint


def tcp_info(endpoint: socket.socket | None) -> bytes:
    """Give what the kernel says of a connection, or as much of it as this one knows to say.

    Nothing of one that has just gone, of none, and on another system than Linux, which lays it out otherwise.
    """
    if endpoint is not None and sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            return endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return b""


def round_trips(info: bytes) -> tuple[int, int]:
    """Read the smoothed and the least round trip off `tcp_info`, in microseconds.

    Raises:
        struct.error: it does not say.
    """
    return _ROUND_TRIPS.unpack_from(info, _ROUND_TRIPS_AT)


def round_trip(transport: asyncio.Transport) -> float | None:
    """Give the least round trip in seconds that the kernel has seen on a TCP connection, if it says."""
    with contextlib.suppress(struct.error):
        return least_trip_of(tcp_info(tcp_socket(transport)))
    return None


def unacknowledged(transport: asyncio.Transport) -> int:
    """Count the bytes that our kernel has taken and the other end's has not acknowledged; 0 where ours does not say."""
    endpoint = tcp_socket(transport)
    if endpoint is None:
        return int(transport.get_extra_info("unacknowledged", 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # closed
            return int.from_bytes(fcntl.ioctl(endpoint.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0


def is_full(transport: asyncio.Transport) -> bool:
    """Say whether the other end's kernel has no room for what ours still has, rather than that something was lost."""
    endpoint = tcp_socket(transport)
    if endpoint is None:
        return bool(transport.get_extra_info("full"))
    with contextlib.suppress(struct.error):  # it does not say, as an older kernel
        on_its_way, waiting, window = _BACKLOG.unpack_from(tcp_info(endpoint))
        return bool(waiting) and not (on_its_way and window)
    return False


def segment(transport: asyncio.Transport) -> int:
    """Give the bytes that the kernel puts into one packet; of a transport without a socket, what is usual."""
    with contextlib.suppress(struct.error):
        return min(int(_SEGMENT.unpack_from(tcp_info(tcp_socket(transport)))[0]), JUMBO)
    return _USUAL


def least_trip_of(info: bytes) -> float:
    """Read the least round trip off `tcp_info`, in seconds.

    Raises:
        struct.error: it does not say.
    """
    smoothed, least = round_trips(info)
    return float(min(smoothed, least or smoothed)) / 1e6


def delivery_rate(info: bytes) -> float | None:
    """Read the bytes/s that were seen of late off `tcp_info`, if it says."""
    if len(info) < _DELIVERY_AT + _DELIVERY.size:
        return None
    return float(_DELIVERY.unpack_from(info, _DELIVERY_AT)[0])


def same_host(transport: asyncio.Transport) -> bool:
    """Say whether both ends of a connection seem to be on one host: they have one address."""
    endpoint = tcp_socket(transport)
    if endpoint is None:
        return False
    try:
        return bool(endpoint.getsockname()[0] == endpoint.getpeername()[0])
    except OSError:  # it has just ended
        return False


def least_trip(transport: asyncio.Transport) -> float:
    """As `round_trip`, of a transport without a socket too; 0 if nobody says."""
    return float(round_trip(transport) or transport.get_extra_info("round_trip") or 0.0)


def control(transport: asyncio.Transport) -> bytes:
    """Name the congestion control of a connection; nothing if nobody says."""
    endpoint = tcp_socket(transport)
    if endpoint is None:
        return bytes(transport.get_extra_info("congestion", b""))
    if hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):  # the connection has just gone
            return endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return b""
