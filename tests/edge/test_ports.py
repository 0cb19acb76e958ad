"""Ports that are listened on: taken, closed, in forks, and without descriptors."""

import asyncio
import errno
import os
import socket

import pytest

from ictp2p.concurrency.forks import made_alone
from ictp2p.edge.network import TcpNetwork, translate
from ictp2p.errors import AddressInUse, AddressNotOurs, NetworkError
from ictp2p.types import Address, shown_address
from tests.edge.caught import LOOPBACK, NETWORK, Caught, forked


def test_a_taken_port_is_named_and_free_again_once_it_is_closed(run):
    async def story() -> None:
        listener = await NETWORK.serve(Caught, LOOPBACK)
        with pytest.raises(AddressInUse, match=f"cannot listen on {listener.address}"):
            await NETWORK.serve(Caught, listener.address)
        listener.close()
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)  # a closed server's socket goes next turn
        (await NETWORK.serve(Caught, listener.address)).close()

    run(story())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_port_is_free_once_it_is_closed_although_a_fork_lives_on(run):
    """The workers of a `DataLoader` are forks, and live on when the peer is closed."""

    async def story() -> None:
        listener = await NETWORK.serve(Caught, LOOPBACK)
        with forked():
            (await NETWORK.connect(Caught, listener.address, 5))[0].abort()
            listener.close()
            await listener.settled()
            again = await NETWORK.serve(Caught, listener.address)
            again.close()

    run(story())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_nor_does_a_fork_keep_a_connection_that_is_still_being_made():
    """Regression: peers dial each other while a program starts its `DataLoader`, and one is no transport's yet then."""
    kept, other = socket.socketpair()
    made_alone(lambda: kept)
    with other, forked():
        kept.close()
        other.settimeout(5)
        assert other.recv(1) == b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("dialed", [False, True])
def test_a_connection_ends_with_its_process_although_a_fork_lives_on(run, dialed: bool):
    """Or the others would not hear of a death from the kernel."""

    async def story() -> None:
        accepted = Caught()
        listener = await NETWORK.serve(lambda: accepted, LOOPBACK)
        transport, dialer = await NETWORK.connect(Caught, listener.address, 5)
        ends = [(await accepted.made, dialer), (transport, accepted)]
        await listener.settled()
        with forked():
            one, other = ends[dialed]
            one.write(b"still open")
            one.abort()
            async with asyncio.timeout(5):
                await other.lost
        listener.close()

    run(story())


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_address_that_is_not_ours_cannot_be_listened_on(run, host: str):
    async def story() -> None:
        with pytest.raises(NetworkError, match="cannot listen on"):
            await NETWORK.serve(Caught, Address(host, 0))

    run(story())


def test_who_gives_up_just_as_the_port_opens_leaves_no_port_behind(run):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = Address(*unused.getsockname())

    def taken() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(address) == 0

    async def story() -> None:
        asked = asyncio.get_running_loop().create_task(NETWORK.serve(Caught, address))
        while not taken():
            await asyncio.sleep(0)
        if not asked.cancel():  # uvloop's opens it without waiting
            asked.result().close()
        await asyncio.wait([asked], timeout=5)
        if not asked.cancelled():
            asked.result().close()
        assert not taken()

    run(story())


@pytest.mark.parametrize("turns", range(6))
def test_who_arrives_just_as_the_port_closes_reaches_a_protocol_or_nothing(run, turns: int):
    """However the turns of the loop fall: no connection may be left without an owner (the fixture looks)."""

    async def story() -> None:
        accepted: list[Caught] = []
        listener = await NETWORK.serve(lambda: accepted.append(Caught()) or accepted[-1], LOOPBACK)
        dialers = [socket.create_connection((listener.address.host, listener.address.port)) for _ in range(20)]
        for _ in range(turns):
            await asyncio.sleep(0)
        listener.close()
        await listener.settled()
        assert all(each.made.done() for each in accepted)
        for each in accepted:
            each.made.result().abort()
            await each.lost
        for dialer in dialers:
            dialer.close()

    run(story())


def test_out_of_descriptors_the_port_pauses_and_goes_on(run, monkeypatch: pytest.MonkeyPatch):
    async def story() -> None:
        accepted = Caught()
        told: list[str] = []
        listener = await NETWORK.serve(lambda: accepted, LOOPBACK, told.append)
        real, failed = socket.socket.accept, []

        def accept(sock: socket.socket) -> tuple[socket.socket, object]:
            if len(failed) < 3:
                failed.append(sock)
                raise OSError(errno.EMFILE, "Too many open files")
            return real(sock)

        monkeypatch.setattr("ictp2p.edge.network._BREATHER", 0.0)
        monkeypatch.setattr(socket.socket, "accept", accept)
        transport, dialer = await NETWORK.connect(Caught, listener.address, 5)
        await accepted.made
        assert len(failed) == 3
        assert told == [f"cannot accept connections at {listener.address}: Too many open files"], "told once"
        transport.close()
        await dialer.lost
        await accepted.lost
        listener.close()

    run(story())


def test_a_dual_stack_listener_shows_ipv4_peers_as_ipv4(run):
    async def story() -> None:
        accepted = Caught()
        try:
            listener = await NETWORK.serve(lambda: accepted, Address("::", 0))
        except NetworkError:
            pytest.skip("this machine has no IPv6")
        transport, dialer = await NETWORK.connect(Caught, Address("127.0.0.1", listener.address.port), 5)
        shown = shown_address((await accepted.made).get_extra_info("peername"))
        assert shown == shown_address(transport.get_extra_info("sockname"))
        assert shown.host == "127.0.0.1"
        transport.abort()
        await asyncio.gather(dialer.lost, accepted.lost)
        listener.close()

    run(story())


@pytest.mark.parametrize("number", [errno.EADDRINUSE, errno.EACCES])
def test_an_address_to_listen_on_that_is_taken_is_named(number: int):
    translated = translate(OSError(number, "x"), "listening", listening=True)
    assert type(translated) is AddressInUse
    assert os.strerror(number) in str(translated)


async def test_an_address_to_listen_on_that_another_machine_has_is_said_to_be_that():
    """Regression: it was `AddressInUse`, with the words of the system, though nobody used it."""
    with pytest.raises(AddressNotOurs, match=r"listen on 203\.0\.113\.1:7001: not an address of this machine"):
        await TcpNetwork().serve(asyncio.Protocol, Address("203.0.113.1", 7001))
