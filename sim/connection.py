"""One end of a simulated connection: asyncio's transport towards the program, and its kernel.

What was sent is on its way in `sim.way`, what has arrived waits in `sim.inbox`, and what the kernel does while nothing
passes is `sim.patience`. Here is what the program sees: order, back pressure, an end for one of TCP's reasons.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ictp2p.edge.preamble import Kind
from ictp2p.types import Address
from sim.elided import KEPT, is_empty
from sim.inbox import Inbox
from sim.internet import Internet
from sim.loop import Process
from sim.patience import Patience
from sim.way import BULK, DATA, FIN, RST, SYN, Way

if TYPE_CHECKING:
    from sim.network import SimListener

PACKET = 1400
"""Bytes of a message from which on it does not fit into what a way that swallows large packets carries."""
KERNEL = 256 * 1024
"""Bytes that the kernels of both ends hold for a connection before the transport's own buffer fills."""


class Endpoint(asyncio.Transport):
    """One end of a connection: asyncio's transport, and its kernel.

    Args:
        internet: where.
        process: whose.
        here: this end's address.
        there: the other end's.
        remote: the other host's name.
    """

    peer: Endpoint

    def __init__(self, internet: Internet, process: Process, here: Address, there: Address, remote: str) -> None:
        super().__init__({"sockname": tuple(here), "peername": tuple(there)})
        self.process = process
        self.local = process.name
        self.remote = remote
        self.listener: SimListener | None = None
        self.connected = False
        self.kind = 0
        """What its preamble says that it is for; 0 before."""
        self.small = False
        """Whether its packets fit everywhere."""
        self.swallowed = False
        """Whether a packet of it is larger than its way carries, and lost each time that it is sent."""
        self.forgotten = False
        """Whether what stands on the way has no memory of it, and tells nobody: nothing passes any more."""
        self._net = internet
        self._loop = internet.loop
        self._cut = internet.blocked(self.local, remote)
        """Whether what is sent vanishes, as of the last change of any path."""
        self.closing = False
        """Whether it is closed, or about to be."""
        self._ended = False
        """`connection_lost` was, or is about to be, called."""
        self.gone = False
        """The kernel knows nothing of this connection any more."""
        self._fin_sent = False
        self._high, self._low = 64 * 1024, 16 * 1024
        self.writing_paused = False
        """Whether whoever writes was told to wait."""
        self._inbox = Inbox(internet, self)
        self._way = Way(internet, self)
        self._patience = Patience(internet, self)

    # ------------------------------------------------------------ asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As asyncio's; and what a kernel would say of the connection (`ictp2p.bulk.kernel`)."""
        if name == "round_trip":
            return self._net.round_trip(self.local, self.remote)
        if name == "congestion":
            return b"reno" if self._net.topology.between(self.local, self.remote).loss else b"bbr"
        if name == "unacknowledged":
            return self._unacknowledged()
        if name == "full":
            return not self.peer._inbox.reading
        if name == "account":
            return self._way.account
        if name == "delivered":
            return self._way.delivered
        return super().get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what arrives to `protocol`."""
        self._inbox.serve(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who gets what arrives."""
        return self._inbox.protocol

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self.closing

    def is_reading(self) -> bool:
        """Whether what arrives is delivered."""
        return self._inbox.reading and not self.closing

    def pause_reading(self) -> None:
        """Deliver nothing for now."""
        self._inbox.reading = False

    def resume_reading(self) -> None:
        """Deliver again, from the next turn of the loop on."""
        if not self._inbox.reading and not self.closing:
            self._inbox.resume()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        if self._fin_sent or not size or self.closing or not self.process.alive:
            return
        if not self.kind:
            self._sniff(bytes(data[:8]))
        net = self._net
        net.bytes_sent[self.local] += size
        if size > BULK and net.elide and is_empty(data):
            self.dispatch(DATA, (bytes(data[:KEPT]), size), size)
        else:
            self.dispatch(DATA, bytes(data), size)
        self._pause_if_full()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send one after the other."""
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        """It can."""
        return True

    def write_eof(self) -> None:
        """Say that nothing more will be sent."""
        if not self._fin_sent and not self.closing:
            self._fin_sent = True
            self.dispatch(FIN)

    def close(self) -> None:
        """Close once everything that was written has left."""
        if self.closing:
            return
        self.closing = True
        if not self._fin_sent:
            self._fin_sent = True
            self.dispatch(FIN)
        if not self.get_write_buffer_size():
            self._end(None)

    def abort(self) -> None:
        """Close now, whatever is on its way."""
        if not self._ended:
            self._drop_queue()
            if self.process.alive:
                self.dispatch(RST)
            self._end(None)
        self.gone = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to pause and resume the writer."""
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_if_full()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Bytes that the kernel has not taken."""
        way, inbox = self._way, self.peer._inbox
        held = int(way.backlog) + self._patience.size
        if self.peer.process.paused:
            held += inbox.unread + way.flying
        elif not inbox.reading:
            held += inbox.unread
        return held - KERNEL if held > KERNEL else 0

    def _unacknowledged(self) -> int:
        """Bytes that the kernel has taken and knows nothing of: all that it has taken since the path went dark."""
        patience = self._patience
        if not patience.dark:
            return 0
        held = min(KERNEL, int(self._way.backlog) + patience.size)
        return max(held, patience.unacknowledged - self.get_write_buffer_size())

    def __repr__(self) -> str:
        return f"<Endpoint {self.local} to {self.remote}{' closing' if self.closing else ''}>"

    # ------------------------------------------------------------ sending

    def _held_up(self) -> bool:
        """Whether the process stands in the middle of what it does, and comes to this only after it."""
        return self.process.alive and self.process.until > self._loop.now

    def dispatch(self, what: str, data: Any = None, size: int = 0) -> None:
        """Send one item, behind everything sent before (a reset overtakes what has not left)."""
        if self.gone:
            return
        if self._held_up() and what != RST:
            self._loop.at(self.process.until, self.dispatch, what, data, size, context=self.process.context)
            return
        patience = self._patience
        if not self.peer.process.alive and not patience.dark:
            self.reset_in(self._net.round_trip(self.local, self.remote))
        elif self._cut or (what != RST and (self._swallows(size) or patience.withholds or patience.choked)):
            patience.withhold(what, data, size)
        else:
            self._way.carry(what, data, size)
        if patience.dark:
            patience.sent(size)

    def _swallows(self, size: int) -> bool:
        """Whether nothing of a message, or of what follows it, will pass: its first packet is too large."""
        if size > PACKET and not self.swallowed and self._is_swallowed():
            self._stop_passing()
        return self.swallowed

    def _is_swallowed(self) -> bool:
        return not self.small and self._net.topology.between(self.local, self.remote).swallows

    def _stop_passing(self) -> None:
        self.swallowed = True
        self._way.open(False)
        self._patience.path_changed(busy=self._way.busy)

    def passed(self) -> None:
        """Some of what was sent has left, or was read: there may be room again."""
        if self.closing or (self.writing_paused and self.get_write_buffer_size() <= self._low):
            self._loop.call_soon(self.drained, context=self.process.context)

    def _pause_if_full(self) -> None:
        if not self.writing_paused and self.get_write_buffer_size() > self._high:
            self.writing_paused = True
            self._inbox.protocol.pause_writing()

    def drained(self) -> None:
        """Go on writing, or end, if what was written has left."""
        if self._ended:
            if not self._leaving():
                self._forget()
            return
        size = self.get_write_buffer_size()
        if self.writing_paused and size <= self._low:
            self.writing_paused = False
            self._inbox.protocol.resume_writing()
        if self.closing and not size:
            self._end(None)

    def _sniff(self, start: bytes) -> None:
        """Whoever speaks first says what the connection is for, at a fixed place."""
        kind = start[6] if len(start) > 6 and start[:4] == b"ICTP" else int(Kind.CONTROL)
        self.kind = self.peer.kind = kind

    # ------------------------------------------------------------ receiving

    def arrive(self, what: str, data: Any, size: int) -> None:
        """Take an item from the network, in this process."""
        self.peer._way.flying -= size
        if self.gone or not self.process.alive:
            if what in (DATA, SYN):
                self.peer.reset_in(self._net.topology.between(self.local, self.remote).delay)
        elif what == RST:
            self.gone = True
            self._end(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif what == SYN:
            self._accept()
        elif not self.connected:
            self._refuse()
        elif what == FIN:
            self._inbox.end()
        elif data is None:
            self._garbled()
        elif self._ended:
            self._refuse()  # a closed socket answers data with a reset
        else:
            if self._net.delivered is not None:
                self._net.delivered(self.remote, self.local, size)
            self._inbox.take(data, size)

    def _accept(self) -> None:
        """The connection is established on the accepting side."""
        listener = self.listener
        if listener is None or self._net.listeners.get(listener.address) is not listener:
            self._refuse()
            return
        self.connected = True
        self.set_protocol(listener.factory())
        self._inbox.protocol.connection_made(self)

    def _refuse(self) -> None:
        self.dispatch(RST)
        self.gone = True
        self._forget()

    def _garbled(self) -> None:
        """TLS found a record that was changed on the way (RFC 8446, section 5.2: terminate)."""
        self.dispatch(RST)
        self.gone = True
        self._end(ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] bad record mac"))

    # ------------------------------------------------------------ ending

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = self.closing = True
        if error is not None:
            self.gone = True
            self._drop_queue()
        self._patience.rest()
        if self.connected and self.process.alive:
            self._loop.call_soon(self._lost, error, context=self.process.context)
        elif self.gone:
            self._forget()

    def _lost(self, error: Exception | None) -> None:
        self._inbox.protocol.connection_lost(error)
        self.set_protocol(asyncio.Protocol())
        self._inbox.clear()
        if self.gone or not self._leaving():
            self._forget()

    def given_up(self) -> None:
        """The kernel has waited for long enough."""
        self.gone = True
        if self._ended:
            self._forget()
        else:
            self._end(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def path_changed(self) -> None:
        """Something was cut or mended somewhere."""
        self._cut = self.forgotten or self._net.blocked(self.local, self.remote)
        self.swallowed = self._is_swallowed() and (self.swallowed or self._way.busy)
        self._patience.path_changed(busy=self._way.busy)
        self._way.open(not (self._cut or self.swallowed or self._patience.choked))

    def choke(self) -> None:
        """Nothing new leaves until what has left is acknowledged."""
        self._way.open(False)
        self._net.fluid.changed()

    def _leaving(self) -> bool:
        """Whether something that was sent has not left."""
        return self._way.busy or self._patience.withholds

    def _forget(self) -> None:
        self._drop_queue()
        self._patience.rest()
        self._net.endpoints.pop(self, None)

    def _drop_queue(self) -> None:
        self._way.drop()
        self._patience.drop()

    def reset_by_peer(self) -> None:
        """A reset arrives out of the blue."""
        self.reset_in(0.0)

    def reset_in(self, seconds: float) -> None:
        """The other host knows nothing of this connection, and will say so."""
        if not self.gone and self.process.alive:
            self._loop.at(self._loop.now + seconds, self.arrive, RST, None, 0, context=self.process.context)

    def process_ended(self, *, power: bool) -> None:
        """Whoever owned this end is dead; its kernel closes it, if that has power."""
        if not power and not self.gone and not self._fin_sent:
            self.dispatch(RST if self._inbox.unread else FIN)
        self.gone = self._ended = self.closing = True
        if power:
            self._drop_queue()
        self._inbox.clear()
        self._patience.rest()
        self._net.endpoints.pop(self, None)
