"""Connections without sockets: asyncio transports whose bytes take the way that the topology says.

`SimNetwork` is one process's `edge.network.Network`; `sim.internet` is what they all share. Connections behave as
TCP's do, as far as a program can see: order is kept, a dial takes a round trip, a port where nobody listens refuses,
a path into nowhere is noticed (`sim.patience`), a killed process's kernel says goodbye for it, a host that lost its
power says nothing, and resets whoever still talks to it when it is back. This module listens and dials; the two ends
of what comes of that are `sim.connection`, and what is on its way between them `sim.way`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TypeVar

from ictp2p.edge.network import Listener, translate
from ictp2p.errors import AddressInUse, AddressNotOurs, Unreachable
from ictp2p.types import WILDCARDS, Address
from sim.connection import Endpoint
from sim.internet import Internet
from sim.loop import Process
from sim.way import SYN

P = TypeVar("P", bound=asyncio.BaseProtocol)


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
    """What one process sees of the network (`edge.network.Network`)."""

    def __init__(self, internet: Internet, process: Process) -> None:
        self._internet = internet
        self._process = process
        self._small: set[str] = set()

    async def serve(
        self, factory: Callable[[], asyncio.BaseProtocol], address: Address, stuck: object = None
    ) -> Listener:
        """Listen; see `Network.serve`."""
        net = self._internet
        own = net.addresses[self._process.name]
        if address.host not in (own, *WILDCARDS):
            raise AddressNotOurs(f"cannot listen on {address}: not an address of {self._process.name}")
        actual = Address(own, address.port or net.port())
        if actual in net.listeners:
            raise AddressInUse(f"cannot listen on {actual}: taken")
        listener = net.listeners[actual] = SimListener(net, self._process, actual, factory)
        return listener

    async def connect(
        self, factory: Callable[[], P], address: Address, timeout: float, *, small: bool = False
    ) -> tuple[asyncio.Transport, P]:
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
        small = small or address.host in self._small
        transport = _establish(self._internet, self._process, address, listener, small=small)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def shrink(self, host: str) -> None:
        """Dial a host with small packets from now on; see `Network.shrink`."""
        self._small.add(host)


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


def _establish(
    internet: Internet, process: Process, address: Address, listener: SimListener, *, small: bool
) -> Endpoint:
    """Make both ends; the other learns of it by the first thing that arrives there."""
    here = Address(internet.addresses[process.name], internet.port())
    dialer = Endpoint(internet, process, here, address, listener.process.name)
    acceptor = Endpoint(internet, listener.process, address, here, process.name)
    dialer.peer, acceptor.peer = acceptor, dialer
    dialer.small = acceptor.small = small
    acceptor.listener = listener
    internet.endpoints[dialer] = internet.endpoints[acceptor] = None
    dialer.connected = True
    dialer.dispatch(SYN)
    return dialer
