"""Two connections joined byte by byte.

Each direction holds one buffer and what the outgoing transport has not yet taken; when that exceeds its high-water
mark the incoming transport is not read. TCP then slows the sender down, as it would on a direct connection. A reader
that takes nothing for the stall deadline ends both. What it takes is what its kernel acknowledges, for a kernel of ours
says only now and then that it has room, and a slow line may need longer than the deadline for that. Another relay may
have no room for longer still; it passes on what its reader says meanwhile (as in `liveness`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias, cast

from ictp2p.bulk import kernel, resting, tuning
from ictp2p.bulk.pacing import Watch
from ictp2p.bulk.renewal import Renewal
from ictp2p.types import shown_address

_BUFFER_BYTES = 256 * 1024

Shrink: TypeAlias = Callable[[str], object]
"""Told of a host (a numeric address) that took nothing of what was sent until its connection ended: its packets may
have been too large (`ictp2p.edge.network`)."""


class Splice(asyncio.BufferedProtocol):
    """One end; `other` is the one that its bytes go to."""

    def __init__(self, stall: float, ended: Callable[[], object], shrink: Shrink) -> None:
        self.other: Splice | None = None
        self.transport: asyncio.Transport
        self._renewal: Renewal
        self._stall = stall
        self._ended = ended
        self._shrink = shrink
        self._host: str
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._written = 0
        self._watch = Watch(stall)
        self._next_look: asyncio.TimerHandle | None = None
        self._clock = asyncio.get_running_loop().time
        self._passed_on = self._looked = self._clock()
        self._gave_up = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin on `transport`."""
        self.transport = cast("asyncio.Transport", transport)
        self._host = shown_address(transport.get_extra_info("peername")).host
        self._renewal = Renewal(self.transport, self._clock())
        self.transport.set_write_buffer_limits(high=4 * _BUFFER_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Read into the one buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read."""
        now = self._clock()
        if self.other is not None and not self.other.transport.is_closing():
            rested, self._passed_on = now > self._passed_on + resting.REST, now
            self.other.pass_on(bytes(self._buffer[:nbytes]), now, rested=rested)

    def pass_on(self, data: bytes, now: float, *, rested: bool) -> None:
        """Send what the other end has read."""
        if not rested or self.transport.get_write_buffer_size():  # what waits for a slow line does not rest
            self._renewal.sent(now)
        elif resting.wake(self.transport):
            self._renewal.woken(now)
        self._written += len(data)
        self.transport.write(data)

    def pause_writing(self) -> None:
        """This end takes no more: do not read the other."""
        if self.other is not None:
            self.other.transport.pause_reading()
        self._arm()

    def resume_writing(self) -> None:
        """This end takes more again."""
        self._disarm()
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other side too: as this one ended, or what is lost would look like all that there was."""
        if exc is not None and self._watch.standing:
            self._shrink(self._host)
        self._disarm()
        other, self.other = self.other, None
        if other is None:
            self._ended()
        elif exc is not None or self._gave_up:
            other.drop()
        else:
            other.finish()

    def finish(self) -> None:
        """The other end is gone: send what is left, or drop it if nobody takes any of it for the stall deadline."""
        self.other = None
        self.transport.close()
        self._arm()

    def drop(self) -> None:
        """The other end was reset, and some of what it was to bring is lost."""
        self.other = None
        self._disarm()
        tuning.reset(self.transport)

    def _arm(self) -> None:
        self._disarm()
        self._look()

    def _look(self) -> None:
        """End if nothing was taken since the last looks."""
        left = self.transport.get_write_buffer_size() + kernel.unacknowledged(self.transport)
        talks, self._looked = self._passed_on > self._looked, self._clock()
        due = not (talks and kernel.is_full(self.transport))  # else it is a relay, of whose reader we hear
        if self._watch.check(0, self._written - left, expecting=False, pending=due):
            self._shrink(self._host)
            self._gave_up = True
            tuning.reset(self.transport)
        else:
            self._renewal.sent(self._clock())
            self._next_look = asyncio.get_running_loop().call_later(self._watch.interval, self._look)

    def _disarm(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        self._watch = Watch(self._stall)


def splice(
    one: asyncio.Transport, two: asyncio.Transport, stall: float, ended: Callable[[], object], shrink: Shrink
) -> tuple[Splice, Splice]:
    """Join two transports, neither of which is being read; both are read from now on.

    `ended` is called once, when both are gone.
    """
    ends = Splice(stall, ended, shrink), Splice(stall, ended, shrink)
    for transport, end, other in zip((one, two), ends, ends[::-1], strict=True):
        end.other = other
        transport.set_protocol(end)
        end.connection_made(transport)
    for transport in (one, two):
        transport.resume_reading()
    return ends
