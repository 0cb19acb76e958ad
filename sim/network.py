"""Connections without sockets: asyncio transports whose bytes take the way that the topology says.

`SimNetwork` is one process's `ictp2p.network.Network`; `Internet` is what they all share. Connections behave as
TCP's do, as far as a program can see: order is kept, a dial takes a round trip, a port where nobody listens refuses,
a path into nowhere is noticed by `USER_TIMEOUT` while something is unacknowledged and by keepalive when idle (the
numbers are those that `ictp2p.network` asks the kernel for), a killed process's kernel says goodbye for it, a host
that lost its power says nothing, and resets whoever still talks to it when it is back.

A message is one `write`. A small one takes the link's delay, jitter and losses. What is large, or stands behind
something large on its connection, is bulk and flows through `fluid`. Nothing is ever sent twice or reordered within
a connection, because TCP hides that; what TCP cannot hide (delay, silence, reset, a flipped bit) can all happen.
A flipped bit on a control connection ends it, as TLS would; on a bulk connection it arrives.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import itertools
import math
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ictp2p.errors import AddressInUse, Unreachable
from ictp2p.network import Listener, translate
from ictp2p.preamble import Kind
from ictp2p.types import Address
from sim.chance import Chance
from sim.elided import KEPT, is_empty, nothing
from sim.fluid import Flow, Fluid
from sim.loop import Process, SimLoop
from sim.topology import Topology

P = TypeVar("P", bound=asyncio.BaseProtocol)

BULK = 4 * 1024
"""Bytes from which a message is bulk."""
KERNEL = 256 * 1024
"""Bytes that the kernels of both ends hold for a connection before the transport's own buffer fills."""
USER_TIMEOUT = 15.0
"""Seconds for which something may stay unacknowledged."""
KEEPALIVE_IDLE = 10.0
"""Seconds after which an idle connection is probed."""
KEEPALIVE = 25.0
"""Seconds after which an idle connection over a dead path is noticed."""
RTO = 0.2
"""Seconds after which a lost segment is sent again, at least."""
_TRICKLE = 0.2
"""Seconds between two parts of one large message that are handed over before all of it has passed."""

Delivery = Callable[[str, str, int], None]


class Internet:
    """All hosts, listeners and connections of a world.

    Args:
        loop: keeps time.
        chance: draws.
        topology: who is where, and what lies between.
        delivered: told (from, to, bytes) of every message that a process gets.
        elide: carry only the size of large messages of zeros, not their bytes.
    """

    def __init__(
        self,
        loop: SimLoop,
        chance: Chance,
        topology: Topology,
        delivered: Delivery | None = None,
        *,
        elide: bool = False,
    ) -> None:
        self.loop = loop
        self.chance = chance
        self.topology = topology
        self.fluid = Fluid(loop)
        self.delivered = delivered
        self.elide = elide
        self.bytes_sent: dict[str, int] = {}
        """Bytes written by each host."""
        self.hosts: dict[str, str] = {}
        """Host by IP address."""
        self.addresses: dict[str, str] = {}
        """IP address by host."""
        self.processes: dict[str, Process] = {}
        """What runs on each host that has power."""
        self.listeners: dict[Address, SimListener] = {}
        self.endpoints: dict[Endpoint, None] = {}
        self.context = contextvars.Context()
        self._ports = itertools.count(40000)

    def host(self, name: str, site: str, ip: str) -> None:
        """Add a host."""
        self.topology.place(name, site)
        self.hosts[ip] = name
        self.addresses[name] = ip

    def boot(self, name: str, process: Process) -> None:
        """A host has power and runs `process`; whoever talks to its former one is reset."""
        self.processes[name] = process
        self.changed()

    def stopped(self, process: Process, *, power: bool) -> None:
        """A process was killed. Its kernel closes its connections, unless the host lost its power."""
        for address in [a for a, listener in self.listeners.items() if listener.process is process]:
            del self.listeners[address]
        if power:
            self.processes.pop(process.name, None)
        for end in [e for e in self.endpoints if e.process is process]:
            end.process_ended(power=power)
        self.changed()

    def changed(self) -> None:
        """Paths may have opened or closed: every connection looks again."""
        for end in list(self.endpoints):
            end.path_changed()
        self.fluid.changed()

    def reset_between(self, names: Callable[[str, str], bool]) -> None:
        """Reset every connection from and to hosts for which `names` says so."""
        for end in [e for e in self.endpoints if names(e.local, e.remote)]:
            end.reset_by_peer()

    def blocked(self, source: str, target: str) -> bool:
        """Whether what one host sends to another vanishes."""
        return target not in self.processes or self.topology.blocked(source, target) is not None

    def delay(self, source: str, target: str) -> float:
        """Seconds that a message takes now, drawn anew for each."""
        link = self.topology.between(source, target)
        seconds = link.delay
        if link.jitter:
            seconds += self.chance.exponential(link.jitter, "jitter", source, target)
        again = max(RTO, 3 * link.delay)
        while self.chance.happens(link.loss, "loss", source, target):
            seconds += again
            again *= 2
        return seconds

    def round_trip(self, a: str, b: str) -> float:
        """Least seconds there and back."""
        return self.topology.between(a, b).delay + self.topology.between(b, a).delay

    def port(self) -> int:
        """A port that nobody had yet."""
        return next(self._ports)


class SimListener:
    """A port that is being listened on."""

    def __init__(
        self, internet: Internet, process: Process, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.address = address
        self.process = process
        self.factory = factory
        self._internet = internet

    def close(self) -> None:
        """Stop accepting."""
        if self._internet.listeners.get(self.address) is self:
            del self._internet.listeners[self.address]

    async def settled(self) -> None:
        """Nothing is on its way to a protocol: a connection reaches it at the instant that it is accepted."""

    def __repr__(self) -> str:
        return f"<SimListener {self.address}>"


class SimNetwork:
    """What one process sees of the network (`ictp2p.network.Network`)."""

    def __init__(self, internet: Internet, process: Process) -> None:
        self._internet = internet
        self._process = process

    async def serve(self, factory: Callable[[], asyncio.BaseProtocol], address: Address) -> Listener:
        """Listen; see `Network.serve`."""
        net = self._internet
        own = net.addresses[self._process.name]
        if address.host not in (own, "0.0.0.0", "::"):
            raise AddressInUse(f"cannot listen on {address}: not an address of {self._process.name}")
        actual = Address(own, address.port or net.port())
        if actual in net.listeners:
            raise AddressInUse(f"cannot listen on {actual}: taken")
        listener = net.listeners[actual] = SimListener(net, self._process, actual, factory)
        return listener

    async def connect(self, factory: Callable[[], P], address: Address, timeout: float) -> tuple[asyncio.Transport, P]:
        """Connect; see `Network.connect`."""
        dial = _Dial(self._internet, self._process, address)
        try:
            async with asyncio.timeout(timeout):
                listener = await dial.answered
        except TimeoutError as error:
            raise Unreachable(f"{address} did not answer within {timeout:g} s") from error
        except OSError as error:
            raise translate(error, f"cannot connect to {address}") from error
        finally:
            dial.over = True
        protocol = factory()
        transport = _establish(self._internet, self._process, address, listener)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return transport, protocol


class _Dial:
    """SYN, again if nobody answers, until somebody does or the caller gives up."""

    def __init__(self, internet: Internet, process: Process, address: Address) -> None:
        self.answered: asyncio.Future[SimListener] = internet.loop.create_future()
        self.over = False
        self._net = internet
        self._me = process.name
        self._address = address
        self._context = process.context
        self._pause = 1.0
        self._there = internet.hosts.get(address.host)
        self._send()

    def _send(self) -> None:
        if self.over or self._there is None:
            return
        net = self._net
        if net.topology.blocked(self._me, self._there) == "reset":
            self._in(net.delay(self._me, self._there), self._fail, OSError(errno.EHOSTUNREACH, "No route to host"))
            return
        if not net.blocked(self._me, self._there):
            net.loop.at(net.loop.now + net.delay(self._me, self._there), self._arrive, context=net.context)
        self._in(self._pause, self._send)
        self._pause *= 2

    def _arrive(self) -> None:
        """At the other host's kernel."""
        net, there = self._net, self._there
        assert there is not None
        site = net.topology.site_of[there]
        hidden = net.topology.sites[site].nat and net.topology.site_of[self._me] != site
        if hidden or there not in net.processes or net.blocked(there, self._me):
            return
        listener = net.listeners.get(self._address)
        back = net.delay(there, self._me)
        if listener is None:
            self._in(back, self._fail, ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
        else:
            self._in(back, self._succeed, listener)

    def _in(self, seconds: float, act: Callable[..., None], *args: object) -> None:
        self._net.loop.at(self._net.loop.now + seconds, act, *args, context=self._context)

    def _succeed(self, listener: SimListener) -> None:
        if not self.answered.done():
            self.answered.set_result(listener)

    def _fail(self, error: OSError) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


def _establish(internet: Internet, process: Process, address: Address, listener: SimListener) -> Endpoint:
    """Make both ends; the other learns of it by the first thing that arrives there."""
    here = Address(internet.addresses[process.name], internet.port())
    dialer = Endpoint(internet, process, here, address, listener.process.name)
    acceptor = Endpoint(internet, listener.process, address, here, process.name)
    dialer.peer, acceptor.peer = acceptor, dialer
    acceptor.listener = listener
    internet.endpoints[dialer] = internet.endpoints[acceptor] = None
    dialer.connected = True
    dialer.dispatch(_SYN)
    return dialer


_SYN = "syn"
_DATA = "data"
_FIN = "fin"
_RST = "rst"


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
        self._net = internet
        self._loop = internet.loop
        self._protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self._closing = False
        self._ended = False
        """`connection_lost` was, or is about to be, called."""
        self._gone = False
        """The kernel knows nothing of this connection any more."""
        self._fin_sent = False
        self._reading = True
        self._eof = False
        self._high, self._low = 64 * 1024, 16 * 1024
        self._writing_paused = False
        self._inbox: deque[bytes | tuple[bytes, int]] = deque()
        self._unread = 0
        self._flying = 0
        self._queue: deque[list[Any]] = deque()  # [data, size, left] of bulk that has not passed
        self._backlog = 0.0
        self._withheld: deque[tuple[str, Any, int]] = deque()  # what was sent into nowhere
        self._withheld_size = 0
        self._arrives = 0.0
        self._trickled = -math.inf
        self._dark_since: float | None = None
        self._unacknowledged_since: float | None = None
        self._mourning: asyncio.TimerHandle | None = None
        self._flow = Flow(
            resources=lambda: internet.topology.resources(self.local, self.remote),
            round_trip=lambda: internet.round_trip(self.local, self.remote),
            loss=lambda: internet.topology.between(self.local, self.remote).loss,
            head=self._head,
            passed=self._passed,
        )

    # ------------------------------------------------------------ asyncio.Transport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what arrives to `protocol`."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who gets what arrives."""
        return self._protocol

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def is_reading(self) -> bool:
        """Whether what arrives is delivered."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Deliver nothing for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver again, from the next turn of the loop on."""
        if not self._reading and not self._closing:
            self._reading = True
            if self._inbox or self._eof:
                self._loop.call_soon(self._feed, context=self.process.context)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        size = len(data) if not isinstance(data, memoryview) else data.nbytes
        if self._fin_sent or not size or self._closing or not self.process.alive:
            return
        if not self.kind:
            self._sniff(bytes(data[:8]))
        self._net.bytes_sent[self.local] = self._net.bytes_sent.get(self.local, 0) + size
        if self._net.elide and size > BULK and is_empty(data):
            self.dispatch(_DATA, (bytes(data[:KEPT]), size), size)
        else:
            self.dispatch(_DATA, bytes(data), size)
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
        if not self._fin_sent and not self._closing:
            self._fin_sent = True
            self.dispatch(_FIN)

    def close(self) -> None:
        """Close once everything that was written has left."""
        if self._closing:
            return
        self._closing = True
        if not self._fin_sent:
            self._fin_sent = True
            self.dispatch(_FIN)
        if not self.get_write_buffer_size():
            self._end(None)

    def abort(self) -> None:
        """Close now, whatever is on its way."""
        if not self._ended:
            self._drop_queue()
            if self.process.alive:
                self.dispatch(_RST)
            self._end(None)
        self._gone = True

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
        stopped = self.peer.process.paused
        unread = (self.peer._unread if stopped or not self.peer._reading else 0) + (self._flying if stopped else 0)
        return max(0, int(self._backlog) + self._withheld_size + unread - KERNEL)

    def __repr__(self) -> str:
        return f"<Endpoint {self.local} to {self.remote}{' closing' if self._closing else ''}>"

    # ------------------------------------------------------------ sending

    def dispatch(self, what: str, data: Any = None, size: int = 0) -> None:
        """Send one item, behind everything sent before (a reset overtakes what has not left)."""
        if self._gone:
            return
        if not self.peer.process.alive and not self._dark():
            self._reset_in(self._net.round_trip(self.local, self.remote))
        elif self._withheld or self._net.blocked(self.local, self.remote):
            self._withhold(what, data, size)
        elif self._queue or size > BULK:
            self._queue.append([what, data, size, float(size)])
            self._backlog += size
            self._net.fluid.start(self._flow)
        else:
            self._depart(what, data, size)
        if self._unacknowledged_since is None and self._dark():
            self._unacknowledged_since = self._loop.now
            self._mourn()

    def _depart(self, what: str, data: Any, size: int) -> None:
        """Everything of it has left: it arrives, after whatever left before."""
        link = self._net.topology.between(self.local, self.remote)
        if link.corrupt and size and self._net.chance.happens(link.corrupt, "corrupt", self.local, self.remote):
            data = self._damaged(data)
        seconds = self._net.delay(self.local, self.remote) + size / link.bandwidth
        self._flying += size
        self._arrives = max(self._arrives, self._loop.now + seconds)
        self._loop.at(self._arrives, self.peer.arrive, what, data, size, context=self.peer.process.context)

    def _damaged(self, data: Any) -> Any:
        if self.kind != Kind.BULK or isinstance(data, tuple):
            return None  # TLS notices
        place = int(self._net.chance.uniform("place", self.local, self.remote) * len(data))
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    def _head(self) -> float:
        """Bytes that must pass before something can be delivered."""
        return float(self._queue[0][3]) if self._queue else 0.0

    def _passed(self, size: float) -> None:
        """The fluid has moved on."""
        while self._queue:
            item = self._queue[0]
            taken = min(size, item[3])
            item[3] -= taken
            size -= taken
            self._backlog -= taken
            if item[3] > 1e-6:
                break
            self._backlog -= item[3]
            self._queue.popleft()
            self._depart(*item[:3]) if item[2] <= BULK else self._arrive_last(item)
        else:
            self._backlog = 0.0
        if self._queue:
            self._deliver_part(self._queue[0])
        self._loop.call_soon(self._resume_if_drained, context=self.process.context)

    def _deliver_part(self, item: list[Any]) -> None:
        """Hand over what has passed of a large message, so that the other side sees it trickle in."""
        what, data, size, left = item
        through = size - int(left + 0.999999)
        if what != _DATA or through < BULK or self._loop.now < self._trickled + _TRICKLE:
            return
        self._trickled = self._loop.now
        if isinstance(data, tuple):
            first, rest = (data[0], through), (b"", size - through)
        else:
            first, rest = data[:through], data[through:]
        item[1], item[2] = rest, size - through
        self._arrive_last([what, first, through, 0.0])

    def _arrive_last(self, item: list[Any]) -> None:
        """A large message has passed the bottleneck: only the way itself is left."""
        what, data, size, _ = item
        link = self._net.topology.between(self.local, self.remote)
        if link.corrupt and self._net.chance.happens(link.corrupt, "corrupt", self.local, self.remote):
            data = self._damaged(data)
        self._flying += size
        self._arrives = max(self._arrives, self._loop.now + link.delay)
        self._loop.at(self._arrives, self.peer.arrive, what, data, size, context=self.peer.process.context)

    def _pause_if_full(self) -> None:
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _resume_if_drained(self) -> None:
        if self._ended:
            if not self._queue and not self._withheld:
                self._forget()
            return
        size = self.get_write_buffer_size()
        if self._writing_paused and size <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and not size:
            self._end(None)

    def _sniff(self, start: bytes) -> None:
        """Whoever speaks first says what the connection is for, at a fixed place."""
        kind = start[6] if len(start) > 6 and start[:4] == b"ICTP" else int(Kind.CONTROL)
        self.kind = self.peer.kind = kind

    # ------------------------------------------------------------ receiving

    def arrive(self, what: str, data: Any, size: int) -> None:
        """Take an item from the network, in this process."""
        self.peer._flying -= size
        if self._gone or not self.process.alive:
            if what in (_DATA, _SYN):
                self.peer._reset_in(self._net.topology.between(self.local, self.remote).delay)
        elif what == _RST:
            self._gone = True
            self._end(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif what == _SYN:
            self._accept()
        elif not self.connected:
            self._refuse()
        elif what == _FIN:
            self._eof = True
            self._feed()
        elif data is None:
            self._garbled()
        elif self._ended:
            self._refuse()  # a closed socket answers data with a reset
        else:
            self._unread += size
            self._inbox.append(data)
            self._feed()

    def _accept(self) -> None:
        """The connection is established on the accepting side."""
        listener = self.listener
        if listener is None or self._net.listeners.get(listener.address) is not listener:
            self._refuse()
            return
        self.connected = True
        self._protocol = listener.factory()
        self._protocol.connection_made(self)

    def _refuse(self) -> None:
        self.dispatch(_RST)
        self._gone = True
        self._forget()

    def _garbled(self) -> None:
        """TLS found a record that was changed on the way (RFC 8446, section 5.2: terminate)."""
        self.dispatch(_RST)
        self._gone = True
        self._end(ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] bad record mac"))

    def _feed(self) -> None:
        """Deliver what has arrived, as long as the protocol wants it."""
        while self._inbox and self._reading and not self._closing:
            self._deliver(self._inbox.popleft())
        if self._inbox or not self._reading:
            return
        if self._eof and not self._closing:
            self._eof = False
            keep = getattr(self._protocol, "eof_received", lambda: None)()
            if not keep:
                self.close()

    def _deliver(self, item: bytes | tuple[bytes, int]) -> None:
        data, size = item if isinstance(item, tuple) else (item, len(item))
        self._unread -= size
        if self._net.delivered is not None:
            self._net.delivered(self.remote, self.local, size)
        if self.peer._writing_paused:
            self._loop.call_soon(self.peer._resume_if_drained, context=self.peer.process.context)
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            self._fill(protocol, data, size)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(data if len(data) == size else data + bytes(size - len(data)))

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes, size: int) -> None:
        done = 0
        while done < size and not self._closing:
            if protocol is not self._protocol or not self._reading:  # it was replaced, or has enough, half-way
                rest = data[done:]
                self._inbox.appendleft((rest, size - done) if len(rest) < size - done else rest)
                self._unread += size - done
                if self._reading:
                    self._loop.call_soon(self._feed, context=self.process.context)
                return
            buffer = protocol.get_buffer(-1)
            view = memoryview(buffer)
            count = min(view.nbytes, size - done)
            real = data[done : done + count]
            view[: len(real)] = real
            if len(real) < count:
                view[len(real) : count] = nothing(count - len(real))
            protocol.buffer_updated(count)
            done += count

    # ------------------------------------------------------------ ending

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = self._closing = True
        if error is not None:
            self._gone = True
            self._drop_queue()
        self._calm()
        if self.connected and self.process.alive:
            self._loop.call_soon(self._lost, error, context=self.process.context)
        elif self._gone:
            self._forget()

    def _lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)
        self._protocol = asyncio.Protocol()
        self._inbox.clear()
        if self._gone or (not self._queue and not self._withheld):
            self._forget()

    def _forget(self) -> None:
        self._drop_queue()
        self._calm()
        self._net.endpoints.pop(self, None)

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._withheld.clear()
        self._backlog = self._withheld_size = 0
        self._net.fluid.drop(self._flow)

    def reset_by_peer(self) -> None:
        """A reset arrives out of the blue."""
        self._reset_in(0.0)

    def _reset_in(self, seconds: float) -> None:
        """The other host knows nothing of this connection, and will say so."""
        if not self._gone and self.process.alive:
            self._loop.at(self._loop.now + seconds, self.arrive, _RST, None, 0, context=self.process.context)

    def process_ended(self, *, power: bool) -> None:
        """Whoever owned this end is dead; its kernel closes it, if that has power."""
        if not power and not self._gone and not self._fin_sent:
            self.dispatch(_RST if self._unread else _FIN)
        self._gone = self._ended = self._closing = True
        if power:
            self._drop_queue()
        self._inbox.clear()
        self._calm()
        self._net.endpoints.pop(self, None)

    # ------------------------------------------------------------ dark paths

    def _dark(self) -> bool:
        """Whether what is sent, or its acknowledgment, vanishes."""
        return self._net.blocked(self.local, self.remote) or self._net.blocked(self.remote, self.local)

    def _withhold(self, what: str, data: Any, size: int) -> None:
        self._withheld.append((what, data, size))
        self._withheld_size += size

    def path_changed(self) -> None:
        """Something was cut or mended somewhere."""
        dark = self._dark()
        self._flow.open = not self._net.blocked(self.local, self.remote)
        if dark and self._dark_since is None:
            self._dark_since = self._loop.now
            if self._queue or self._withheld:
                self._unacknowledged_since = self._loop.now
            self._mourn()
        elif not dark and self._dark_since is not None:
            self._relieved(self._dark_since)

    def _relieved(self, since: float) -> None:
        """The path is back: what was withheld leaves when TCP next tries, whose pauses have doubled."""
        self._dark_since = self._unacknowledged_since = None
        self._calm()
        if not self.peer.process.alive:
            self._reset_in(KEEPALIVE_IDLE if not self._withheld else RTO)
        elif self._withheld:
            pause = max(RTO, 1.5 * self._net.round_trip(self.local, self.remote))
            due = since + pause
            while due < self._loop.now:
                pause *= 2
                due += pause
            self._loop.at(due, self._release, context=self.process.context)

    def _release(self) -> None:
        if self._gone or self._net.blocked(self.local, self.remote):
            return
        withheld, self._withheld = self._withheld, deque()
        self._withheld_size = 0
        for item in withheld:
            self.dispatch(*item)
        self._resume_if_drained()

    def _mourn(self) -> None:
        """Set the time at which this side's kernel gives the connection up."""
        self._calm()
        if self._dark_since is None:
            self._dark_since = self._loop.now
        due = self._dark_since + KEEPALIVE
        if self._unacknowledged_since is not None:
            due = min(due, self._unacknowledged_since + USER_TIMEOUT)
        self._mourning = self._loop.at(max(due, self._loop.now), self._given_up, context=self.process.context)

    def _calm(self) -> None:
        if self._mourning is not None:
            self._mourning.cancel()
            self._mourning = None

    def _given_up(self) -> None:
        self._mourning = None
        self._gone = True
        if self._ended:
            self._forget()
        else:
            self._end(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
