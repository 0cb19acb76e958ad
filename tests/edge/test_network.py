"""Connections over TCP as both ends see them: their addresses, their packets, and how they notice failure."""

import asyncio
import errno
import os
import socket
import sys

import pytest

import ictp2p.edge.network
from ictp2p.edge.network import TcpNetwork
from ictp2p.errors import AddressInUse, ConnectionLost
from ictp2p.types import Address, shown_address
from tests.edge.caught import LOOPBACK, NETWORK, Caught


def test_bytes_go_both_ways_and_both_ends_show_the_same_addresses(run):
    async def story() -> None:
        accepted: list[Caught] = []
        listener = await NETWORK.serve(lambda: accepted.append(Caught()) or accepted[-1], LOOPBACK)
        assert listener.address.port != 0
        transport, dialer = await NETWORK.connect(Caught, listener.address, 5)
        transport.write(b"hello")
        transport.close()
        await dialer.lost
        (acceptor,) = accepted
        await acceptor.lost
        assert acceptor.data == b"hello"
        listener.close()

    run(story())


@pytest.mark.parametrize(("reached", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
def test_everywhere_is_at_the_addresses_of_both_families_each_shown_as_its_own(run, reached: str, shown: str):
    async def story() -> None:
        accepted: list[Caught] = []
        listener = await NETWORK.serve(lambda: accepted.append(Caught()) or accepted[-1], Address("::", 0))
        transport, dialer = await NETWORK.connect(Caught, listener.address._replace(host=reached), 5)
        await listener.settled()
        (acceptor,) = accepted
        assert shown_address((await acceptor.made).get_extra_info("sockname")).host == shown
        transport.close()
        await dialer.lost
        await acceptor.lost
        listener.close()

    run(story())


@pytest.mark.parametrize("lacks", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_everywhere_is_at_those_of_ipv4_alone_where_a_kernel_has_no_other(
    run, monkeypatch: pytest.MonkeyPatch, lacks: int
):
    def without_ipv6(family: int, *rest: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(lacks, os.strerror(lacks))
        return one(family, *rest)

    async def story() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", without_ipv6)
            listener = await NETWORK.serve(Caught, Address("::", 0))
        assert listener.address.host == "0.0.0.0"
        with pytest.raises(AddressInUse, match=r"cannot listen on \[::\]"):
            await NETWORK.serve(Caught, listener.address._replace(host="::"))
        listener.close()

    one = socket.socket
    run(story())


def segment(transport: asyncio.Transport) -> int:
    """Bytes that the kernel puts into one packet of a connection."""
    info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int.from_bytes(info[16:20], sys.byteorder)  # tcpi_snd_mss, linux/tcp.h


async def segments(network: TcpNetwork, *, small: bool) -> list[int]:
    """Of both ends of a connection that was dialed so."""
    accepted = Caught()
    listener = await network.serve(lambda: accepted, LOOPBACK)
    transport, dialer = await network.connect(Caught, listener.address, 5, small=small)
    found = [segment(end) for end in (transport, await accepted.made)]
    transport.abort()
    await asyncio.gather(dialer.lost, accepted.lost)
    listener.close()
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")
@pytest.mark.parametrize("small", [False, True])
def test_both_ends_of_a_connection_send_packets_that_fit_everywhere_if_it_was_dialed_so(run, small):
    for size in run(segments(TcpNetwork(), small=small)):
        assert (size <= 1280 - 40 - 20) == small, "of IPv6's least packet, without the headers"
        assert size > 1000


@pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")
def test_a_host_whose_large_packets_may_be_lost_is_dialed_with_small_ones_for_an_hour(run, monkeypatch):
    monkeypatch.setattr(ictp2p.edge.network, "is_local", lambda host: False)

    async def story() -> None:
        network, loop = TcpNetwork(), asyncio.get_running_loop()
        now = loop.time()
        network.shrink("192.0.2.1")
        assert min(await segments(network, small=False)) > 1220, "another host"
        network.shrink(LOOPBACK.host)
        assert max(await segments(network, small=False)) <= 1220
        monkeypatch.setattr(type(network), "_now", lambda self: now + 3700.0)
        assert min(await segments(network, small=False)) > 1220
        assert not network._small, "nothing is kept of who was there once"

    run(story())


@pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")
def test_packets_that_never_leave_this_host_fit_as_they_are(run):
    async def story() -> None:
        network = TcpNetwork()
        network.shrink(LOOPBACK.host)
        assert min(await segments(network, small=False)) > 1220

    run(story())


def test_every_connection_is_set_up_to_notice_failure(run):
    def options(transport: asyncio.Transport) -> dict[str, int]:
        sock = transport.get_extra_info("socket")
        names = ("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        found = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names}
        return {**found, "SO_KEEPALIVE": sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)}

    async def story() -> None:
        accepted = Caught()
        listener = await NETWORK.serve(lambda: accepted, LOOPBACK)
        transport, dialer = await NETWORK.connect(Caught, listener.address, 5)
        for end in (transport, await accepted.made):
            assert options(end) == {
                "TCP_NODELAY": 1,
                "TCP_KEEPIDLE": 10,
                "TCP_KEEPINTVL": 5,
                "TCP_KEEPCNT": 3,
                "TCP_USER_TIMEOUT": 15_000,
                "SO_KEEPALIVE": 1,
            }
        transport.abort()
        await asyncio.gather(dialer.lost, accepted.lost)
        listener.close()

    run(story())


def test_a_connection_that_ends_while_its_protocol_first_speaks_is_lost_by_name(run):
    class Ended(Caught):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.abort()  # as a write does that meets a reset

    async def story() -> None:
        listener = await NETWORK.serve(Caught, LOOPBACK)
        with pytest.raises(ConnectionLost, match=str(listener.address)):
            await NETWORK.connect(Ended, listener.address, 5)
        listener.close()

    run(story())
