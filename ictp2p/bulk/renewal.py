"""Renews what bbr knows of a line while it sends, so that it does not stop to measure the round trip.

bbr measures its least round trip again when the last value is ten seconds old, and has four packets on their way for
200 ms to do so (`bbr_update_min_rtt`; Cardwell et al., BBR, ACM Queue 2016, "ProbeRTT"). A chain of clusters stands
still whenever one of its connections does: eight clusters took 6.4 to 7.0 s for what took 6.2 s, every time, when no
connection paused. Who has rested for those ten seconds is spared by its first message (`resting`); since when they
count, `freshness` finds out. Who sends on has no cheap way to empty its queue, but does not need one: a connection that
is given to bbr anew takes the least round trip that the kernel has seen in the last five minutes (`tcp_min_rtt`).

It also forgets the rate, and searches for it with nearly three times what it has, into the line's queue. So it is held
a little above the rate that it knew for as long as it searches: some round trips where it has enough to send, and else
until it has; a link of a chain that is not the narrowest never has (`bbr_check_full_bw_reached`). A connection that
searched already goes on with that, and is not held.

The pause has uses, which this takes away. Several connections of bbr that pause together see their line empty; ours
see it empty between rounds. And a way that becomes longer, since a cable broke and its traffic goes around, is found
out by it. Whoever is given to bbr anew would believe in the shorter way until the kernel has forgotten that, with a
window that is too small for the longer one, shows less each time, and sinks: 8 MB over 60 Mbit/s took up to 40 s, which
is 36 times the line's, where 50 ms had become 200. So what bbr found longer is not taken from it; and it is let look
where round trips are long enough to be of another way and its rate has sunk, too. A queue alone makes them as long: who
was let look for that had done so in vain, a moment before the way did become longer, and might not for a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import socket
import struct
import sys

from ictp2p.bulk import kernel, tuning
from ictp2p.bulk.freshness import EXPIRY, Freshness

EARLY = 1.0
"""Seconds before that in which a frame finds us; while somebody sends there is one every few milliseconds."""
_AGAIN = 0.1
"""Seconds until we look again, while it sends: at whether what it knows is another, or is old."""
_ABOVE = 1.05
"""Times the rate that it knew, what a connection may send until it knows it again: what goes beyond that of the line
fills its queue."""
_SLOWEST = 4 * 1460
"""Bytes in a round trip that a connection may send whatever it knew, as many as bbr has on their way at the least: what
a line carried just after it was cut may be a packet in seconds, and at that no search would ever be over."""
_BBR, _OTHER = b"bbr", b"reno"  # the kernel always has reno, and lets everybody use it
_TCP_CC_INFO = 26
"""include/uapi/linux/tcp.h; Python has no name for it."""
_CC_INFO = struct.Struct("=QI2I")  # struct tcp_bbr_info: bytes/s, least round trip, gains in 1/256 of rate and window
_SEARCHING = 2 * 256
"""A gain above which bbr still searches for its rate; else it has 5/4 at most."""
_PAUSED = 256
"""The gain of the window in a pause, and never else: four packets are on their way after a timeout as well."""
_INFO = struct.Struct("=xB66xI76xI")  # in tcp_info: state of repair, round trip in microseconds, the least one
_SILENCE = struct.Struct("=56xI")  # in tcp_info: milliseconds since the last acknowledgement
_REPAIRS = 2
"""The first state in which a loss is repaired (TCP_CA_CWR); before it, all is well or out of order."""
_LONGER = 1.25
"""Times the kernel's least round trip, from which on what bbr has found is of another way."""
_CRAMPED = 2
"""Times the kernel's least round trip: bbr has two of them on their way, which are not enough for a longer one."""
_SUNK = 0.9
"""Part of the best rate that it knew, below which its rate has sunk, as it does where the way has become longer."""
_DOUBT = 60.0
"""Seconds between two pauses that we let bbr have for round trips that may as well be those of a queue."""


class Renewal:
    """Keeps one connection from pausing.

    Args:
        transport: of the connection.
        now: monotonic seconds.
    """

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        self._transport = transport
        self._known = Freshness(now)
        self._next = now if _possible(transport) else math.inf
        """When to look again."""
        self._doubted = self._left_until = -math.inf
        """When bbr was last let look whether the way is longer, and until when it is left alone for that."""
        self._best = 0
        """The highest rate that it has known since then, in bytes/s."""
        self._paced: float | None = None
        self._held: float | None = None

    def pace(self, rate: float | None) -> bool:
        """Have the kernel send at most `rate` bytes/s, headers included; None: as fast as it goes. Say if it does."""
        self._paced, self._best = rate, 0  # what it sends from now on is compared with itself
        return self._limit()

    def woken(self, now: float) -> None:
        """Note that the connection had rested: what is sent next renews what is old."""
        endpoint = kernel.tcp_socket(self._transport)
        if endpoint is None:
            return
        with contextlib.suppress(OSError, struct.error):  # as in `sent`
            silence = _SILENCE.unpack_from(kernel.tcp_info(endpoint))[0] / 1000
            _, found, _, window = _bbr(endpoint)
            self._known.looked(found, now, now - silence)
            if window == _PAUSED:  # it fell silent in a pause, which ends with what is sent next
                self._known.renewed(now)
            else:
                self._known.rested(now)

    def sent(self, now: float) -> None:
        """Renew what will be old soon, and let go of who is held and knows its rate again.

        To be called with each frame that follows another one, and now and then while bytes wait to leave: who is held
        at little may have no frame for longer than a rest, and would be held for good.
        """
        if now < self._next:
            return
        self._next = now + _AGAIN
        endpoint = kernel.tcp_socket(self._transport)
        if endpoint is not None and not self._transport.is_closing():
            with contextlib.suppress(OSError, struct.error):  # it has just gone; another bbr than we know
                self._look(endpoint, now)

    def _look(self, endpoint: socket.socket, now: float) -> None:
        control = endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
        if control != _BBR:  # it may be given to bbr later
            self._hold(None)
            self._known.renewed(now)
            return
        repair, round_trip, least = _INFO.unpack_from(kernel.tcp_info(endpoint))
        rate, found, gain, window = _bbr(endpoint)
        self._known.looked(found, now, now)
        if window == _PAUSED:
            self._known.renewed(now)
            return
        searches = gain > _SEARCHING or not rate
        if not searches:
            self._hold(None)
            self._best = max(self._best, rate)
        if now >= max(self._known.earliest + EXPIRY - EARLY, self._left_until):
            cramped = round_trip > _CRAMPED * least and rate < _SUNK * self._best and not searches
            if found > _LONGER * least or (cramped and now >= self._doubted + _DOUBT):
                self._let_look(now)
            elif repair < _REPAIRS:
                slowest = _SLOWEST / max(round_trip, 1) * 1e6
                self._renew(endpoint, now, None if searches else max(_ABOVE * rate, slowest))

    def _let_look(self, now: float) -> None:
        """Let bbr measure its least round trip by itself, for its way may be longer than the kernel remembers."""
        self._doubted, self._best = now, 0
        self._left_until = now + EXPIRY - EARLY

    def _renew(self, endpoint: socket.socket, now: float, rate: float | None) -> None:
        if rate is not None:
            self._hold(rate)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _OTHER)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _BBR)
        self._known.renewed(now)

    def _hold(self, rate: float | None) -> None:
        if rate != self._held:
            self._held = rate
            self._limit()

    def _limit(self) -> bool:
        limits = [rate for rate in (self._paced, self._held) if rate is not None]
        return tuning.pace(self._transport, min(limits, default=None))


def _bbr(endpoint: socket.socket) -> tuple[int, int, int, int]:
    """Give what bbr knows: its rate in bytes/s, least round trip in microseconds, and its gains in 1/256.

    Raises:
        struct.error: it is not bbr, or another one than we know.
    """
    info = endpoint.getsockopt(socket.IPPROTO_TCP, _TCP_CC_INFO, _CC_INFO.size)
    rate, found, gain, window = _CC_INFO.unpack(info)
    return rate, found, gain, window


def _possible(transport: asyncio.Transport) -> bool:
    return sys.platform.startswith("linux") and kernel.tcp_socket(transport) is not None and _allowed()


@functools.cache
def _allowed() -> bool:
    """Say whether we may give a connection to bbr: one that has it by its route we could take it from, and no more."""
    try:
        with socket.socket() as unconnected:
            unconnected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _BBR)
    except OSError:
        return False
    return True
