"""When the kernel wakes a connection for what has come: once per chunk, and not for each of its segments.

SO_RCVLOWAT lets a chunk gather in the kernel before it wakes us, so that a megabyte costs a few reads; the kernel wakes
us earlier by itself when its buffer runs full. A trickle must not be mistaken for silence: the connection asks for
every byte again as soon as it has seen no progress (`Wakeups.relax`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from ictp2p.bulk import kernel, tuning

GATHER = 1024 * 1024
"""Bytes of a body that should be there before we are woken: a whole chunk. Woken by 512 and by 256 KiB a ring of two,
three or four on one machine took 4 to 7 and 7 to 30 % more CPU."""
FAR_GATHER = 16 * 1024
"""The same where a round trip is long: a quarter of the window that a connection begins with."""


class _Borrowed(socket.socket):
    """A socket by the number of one that belongs to somebody else, who closes it."""

    def __del__(self) -> None:
        self.detach()


class Wakeups:
    """How many bytes must have come before a connection is woken.

    That is said twice for each chunk, and uvloop's sockets are made anew, and looked at by the kernel, for each option
    that is set. So we set it by a socket of our own, until the connection ends and its number may become another's.

    Args:
        transport: of the connection.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._endpoint: socket.socket | None = None
        if (endpoint := kernel.tcp_socket(transport)) is not None:
            with contextlib.suppress(OSError, ValueError):  # it has just ended
                self._endpoint = _Borrowed(fileno=endpoint.fileno())
        self._low = 1
        self._most = GATHER if (kernel.round_trip(transport) or 0.0) <= tuning.NEARBY else FAR_GATHER

    def expect(self, missing: int) -> None:
        """Say that so many bytes of a body are still missing; 1 for any."""
        low = min(missing, self._most)
        if low != self._low and self._endpoint is not None:
            self._low = low
            try:
                self._endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)
            except OSError:  # no such option here, or the socket is being closed: woken by every byte
                self._endpoint = None

    def relax(self) -> None:
        """Be woken by every byte, until something is expected again."""
        self.expect(1)

    def end(self) -> None:
        """The connection is no longer ours: whatever is expected from now on asks nothing of the kernel."""
        self._endpoint = None
