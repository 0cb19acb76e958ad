"""The one seam to the world: listen here, connect there.

Everything above this module sees two calls and asyncio transports; the simulator replaces both and runs the
same peer. The seam therefore hands out *transports with protocols*, not streams: the data plane receives into
memory of its own (`asyncio.BufferedProtocol`), and TLS is started on a transport that has already spoken.

Foreign errors end here. An `OSError` becomes the error of the one who can mend it: `AddressInUse` for the
operator, `Refused` when the other host itself says that nobody listens (evidence that a process is gone),
`Unreachable` for silence.

Sockets are set up for a control plane that must notice failure: TCP_NODELAY (a small write must not wait 40 ms
for the other side's delayed acknowledgement), keepalive, and TCP_USER_TIMEOUT (RFC 5482), without which Linux
retransmits into a dead path for a quarter of an hour. Kernel buffers and the congestion control are left alone.

*Small packets.* A tunnel, or a hop between a cluster of jumbo frames and the rest of the world, may lose what is larger
than it carries and keep the word that says so to itself (RFC 2923, section 2.1): a connection opens, small messages
pass, and the first full packet is repeated until somebody gives up. Linux can find that out, but for a whole host only
and not unless its administrator says so (`tcp_mtu_probing`, RFC 4821). So control connections, whose bytes are few,
are dialed with packets that fit everywhere, and whoever moves tensors says which host's got lost (`shrink`), which is
then dialed in the same way for a while. They cost 1.2 % of the line, for their headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Callable
from typing import Protocol, TypeVar

from ictp2p.concurrency import tasks
from ictp2p.concurrency.forks import held_alone, made_alone
from ictp2p.edge.happy_eyeballs import look_up, reach
from ictp2p.errors import AddressInUse, AddressNotOurs, ConnectionLost, NetworkError, Refused, Unreachable
from ictp2p.types import Address, shown_address

P = TypeVar("P", bound=asyncio.BaseProtocol)

_KEEPALIVE_IDLE = 10
_KEEPALIVE_INTERVAL = 5
_KEEPALIVE_PROBES = 3
_USER_TIMEOUT = 15_000  # milliseconds; SWIM's probes are faster, this is the floor under them
_BACKLOG = 512
_SMALL = 1280 - 60
"""Bytes that TCP may put into a small packet, options included: what IPv6 asks of each way (RFC 8200, section 5)."""
_SMALL_FOR = 3600.0
"""Seconds for which a host is dialed so. What is wrong with a way may be mended, but connections live for months."""
_RESOLVE = 5.0  # seconds to look up the name of an address to listen on
_AT_ONCE = 64  # connections accepted in one turn of the loop, at most
_BREATHER = 1.0  # seconds without accepting after the system had no room for another connection
_TAKEN = {errno.EADDRINUSE, errno.EACCES}
_NO_IPV6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


OnStuck = Callable[[str], None]
"""Told why connections cannot be accepted, once each time that this begins: those who dial see silence alone."""


def _untold(text: str) -> None:
    """Nobody wants to know."""


class Listener(Protocol):
    """A port that is being listened on."""

    @property
    def address(self) -> Address:
        """Where it listens, with the port that was given when port 0 was asked for."""
        ...

    def close(self) -> None:
        """Stop accepting, at once. Accepted connections live on."""
        ...

    async def settled(self) -> None:
        """Wait until every connection that was accepted has reached its protocol; that takes moments."""
        ...


class Network(Protocol):
    """What the simulator replaces."""

    async def serve(
        self, factory: Callable[[], asyncio.BaseProtocol], address: Address, stuck: OnStuck = _untold
    ) -> Listener:
        """Listen at `address`; every connection gets a protocol from `factory`, and `stuck` is told if none can.

        Raises:
            AddressInUse: the port is taken.
            AddressNotOurs: the address is not one of this machine.
            Unreachable: its host name cannot be looked up, or the system has no room for another socket.
        """
        ...

    async def connect(
        self, factory: Callable[[], P], address: Address, timeout: float, *, small: bool = False
    ) -> tuple[asyncio.Transport, P]:
        """Connect to `address` within `timeout` seconds, the look-up of a host name included.

        `small`: both ends send packets that fit everywhere, as they do for a while to a host of `shrink`.

        Raises:
            Refused: the host says that nobody listens there.
            Unreachable: no answer in time, no such host, no way to it, or no room for what that takes.
            ConnectionLost: it was reset at once.
        """
        ...

    def shrink(self, host: str) -> None:
        """Dial a host, by its numeric address, with small packets for a while: large ones may have been lost."""
        ...


class TcpNetwork:
    """TCP over the running loop, asyncio's or uvloop's."""

    def __init__(self) -> None:
        self._small: dict[str, float] = {}
        """Hosts that are dialed with small packets, and until when."""

    async def serve(
        self, factory: Callable[[], asyncio.BaseProtocol], address: Address, stuck: OnStuck = _untold
    ) -> Listener:
        """Listen at `address`; at :: for both families, or the one that there is here. See `Network.serve`."""
        loop = asyncio.get_running_loop()
        try:
            family, where = await _resolve(address, socket.AI_PASSIVE)
            sock = _everywhere(address.port) if address.host == "::" else _listening_socket(family, where)
        except (OSError, ValueError) as error:  # ValueError: a host that cannot even be looked up, as in "a..b"
            raise translate(error, f"cannot listen on {address}", listening=True) from error
        return _TcpListener(loop, sock, factory, stuck)

    async def connect(
        self, factory: Callable[[], P], address: Address, timeout: float, *, small: bool = False
    ) -> tuple[asyncio.Transport, P]:
        """Connect to `address`; see `Network.connect`."""

        def prepare(sock: socket.socket, host: str) -> None:
            if small or host in self._shrunk():
                _send_small(sock)

        try:
            async with asyncio.timeout(timeout):
                transport, protocol = await _over(await reach(address, timeout, prepare), factory)
        except TimeoutError as error:
            raise Unreachable(f"{address} did not answer within {timeout:g} s") from error
        except (OSError, ValueError) as error:
            raise translate(error, f"cannot connect to {address}") from error
        try:
            if transport.is_closing():  # there is nothing to tune
                raise ConnectionResetError
            _tune(transport.get_extra_info("socket"))
        except OSError as error:
            transport.abort()
            raise translate(error, f"cannot connect to {address}") from error
        return transport, protocol

    def shrink(self, host: str) -> None:
        """Dial a host with small packets for an hour, unless it is this one."""
        if not is_local(host):
            self._shrunk()[host] = self._now() + _SMALL_FOR

    def _shrunk(self) -> dict[str, float]:
        now = self._now()
        self._small = {host: until for host, until in self._small.items() if until > now}
        return self._small

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class _TcpListener:
    """Accepts by itself, so that every connection has an owner at every instant.

    In asyncio's server a connection belongs to nobody for two turns of the loop, between `accept` and its protocol:
    one that arrives while the port is being closed, or the loop is, stays open until the garbage collector finds it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        stuck: OnStuck,
    ) -> None:
        self.address = shown_address(sock.getsockname())
        self._loop = loop
        self._socket = sock
        self._factory = factory
        self._tell_stuck = stuck
        self._stuck = False
        self._arriving: set[asyncio.Task[None]] = set()
        self._listen()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    async def settled(self) -> None:
        await tasks.ended(self._arriving)

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock = made_alone(lambda: self._socket.accept()[0])
            except (BlockingIOError, InterruptedError, ConnectionError):
                return  # nobody else, or it was gone before we asked
            except OSError as error:  # out of descriptors or memory: who waits must not turn the loop into a treadmill
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(_BREATHER, self._listen)
                self._begin_to_be_stuck(error)
                return
            self._stuck = False
            sock.setblocking(False)
            task = self._loop.create_task(self._arrive(sock))
            self._arriving.add(task)
            task.add_done_callback(lambda done, sock=sock: self._arrived(done, sock))  # type: ignore[misc]

    def _begin_to_be_stuck(self, error: OSError) -> None:
        if not self._stuck:
            self._stuck = True
            self._tell_stuck(f"cannot accept connections at {self.address}: {_words(error)}")

    async def _arrive(self, sock: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._factory, sock)

    def _arrived(self, task: asyncio.Task[None], sock: socket.socket) -> None:
        self._arriving.discard(task)
        if task.cancelled() or task.exception() is not None:
            sock.close()

    def __repr__(self) -> str:
        return f"<TcpListener {self.address}>"


def translate(error: BaseException, what: str, *, listening: bool = False) -> NetworkError:
    """Say as one of our errors why an attempt to connect, or to listen, failed; `what` begins the message."""
    match error:
        case ConnectionRefusedError():
            return Refused(f"{what}: nobody listens there")
        case ConnectionError():
            return ConnectionLost(f"{what}: the connection was reset")
        case OSError() if listening and error.errno == errno.EADDRNOTAVAIL:
            return AddressNotOurs(f"{what}: not an address of this machine")
        case OSError() if listening and error.errno in _TAKEN:
            return AddressInUse(f"{what}: {os.strerror(error.errno)}")
        case _:
            return Unreachable(f"{what}: {_words(error)}")


def ended(error: BaseException | None, what: str) -> ConnectionLost:
    """Say why a connection ended, from what its transport gave to `connection_lost`."""
    match error:
        case None:
            return ConnectionLost(f"{what}: the other side closed the connection")
        case ConnectionError():
            return ConnectionLost(f"{what}: the connection was reset")
        case _:
            return ConnectionLost(f"{what}: {_words(error)}")


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def is_local(host: str) -> bool:
    """Whether a host is such that nobody beyond this machine, or beyond one link of it, reaches it by that."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local


def is_ours(host: str) -> bool:
    """Whether a numeric address is one of this machine's at present; one of which nobody can tell is."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError) as error:
        return getattr(error, "errno", None) != errno.EADDRNOTAVAIL
    return True


async def _over(sock: socket.socket, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
    """Make a connected socket a transport, which owns it from then on, and its protocol."""
    try:
        protocol = factory()
    except BaseException:
        sock.close()
        raise
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, sock=sock)
    except BaseException:
        _forget(sock)
        raise
    if transport.is_closing():  # it ended while the protocol said its first words
        _forget(sock)
    return transport, protocol


def _forget(sock: socket.socket) -> None:
    """Have a socket object let go of a descriptor that is its transport's to close.

    A transport of uvloop that ends this early leaves it to both, and by the second time it may be another connection's.
    """
    if not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        sock.detach()


async def _resolve(address: Address, flags: int) -> tuple[int, tuple[object, ...]]:
    async with asyncio.timeout(_RESOLVE):
        found = await look_up(address, flags)
    return found[0]


def _everywhere(port: int) -> socket.socket:
    """Listen at every address of this machine: those of IPv4 alone if its kernel knows no IPv6, or has none to give."""
    try:
        return _listening_socket(socket.AF_INET6, ("::", port))
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return _listening_socket(socket.AF_INET, ("0.0.0.0", port))


def _listening_socket(family: int, where: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restarted peer takes its port back at once; a living one still keeps it (Linux, BSD).
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        _tune(sock)  # accepted sockets inherit it
        sock.bind(where)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
        held_alone(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def _send_small(sock: socket.socket) -> None:
    """Have both ends send small packets: what we ask the other end for in our first one bounds what we send too."""
    if hasattr(socket, "TCP_MAXSEG"):
        with contextlib.suppress(OSError):  # a system that does not let us choose
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SMALL)


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": _KEEPALIVE_IDLE,
        "TCP_KEEPINTVL": _KEEPALIVE_INTERVAL,
        "TCP_KEEPCNT": _KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": _USER_TIMEOUT,
    }
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:  # each platform has some of them
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
