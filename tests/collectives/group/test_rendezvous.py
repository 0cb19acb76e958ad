from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from ictp2p.collectives.group.rendezvous import MAX_VALUE, Rendezvous, RendezvousServer
from ictp2p.errors import AddressNotOurs, LocalGroupError
from ictp2p.types import Address


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    server = RendezvousServer("127.0.0.1")
    yield server
    server.close()


def test_listens_on_the_given_interface_only(server: RendezvousServer) -> None:
    assert server.address.host == "127.0.0.1"
    with pytest.raises(AddressNotOurs, match=r"203\.0\.113\.1"):
        RendezvousServer("203.0.113.1")


@pytest.mark.parametrize(
    ("host", "interface"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")]
)
def test_a_member_knows_from_which_of_its_addresses_it_reached_the_server(host: str, interface: str) -> None:
    """One that Gloo finds an interface for: of an IPv4 address that is written as an IPv6 one it finds none."""
    server = RendezvousServer(host)
    store = Rendezvous(server.address, 5.0)
    assert store.interface == interface
    store.close()
    server.close()


def test_a_value_reaches_whoever_waits_for_it(server: RendezvousServer) -> None:
    one, other = Rendezvous(server.address, 5.0), Rendezvous(server.address, 5.0)
    threading.Timer(0.1, one.set, ("0/1", [1, 2, 255])).start()
    other.wait(["0/1"])
    assert other.get("0/1") == b"\x01\x02\xff"
    one.close()
    other.close()


def test_a_wait_has_a_deadline_and_names_what_it_waited_for(server: RendezvousServer) -> None:
    store = Rendezvous(server.address, 0.2)
    with pytest.raises(LocalGroupError, match="'0/7'"):
        store.get("0/7")
    store.close()


def test_abort_from_another_thread_ends_a_wait_with_its_reason(server: RendezvousServer) -> None:
    store = Rendezvous(server.address, 600.0)  # longer than this test may take
    threading.Timer(0.1, store.abort, ("member 3 died",)).start()
    with pytest.raises(LocalGroupError, match="member 3 died"):
        store.get("0/1")
    store.close()


def test_a_closing_server_ends_every_wait() -> None:
    server = RendezvousServer("127.0.0.1")
    store = Rendezvous(server.address, 50.0)
    threading.Timer(0.1, server.close).start()
    with pytest.raises(LocalGroupError, match="hung up"):
        store.get("0/1")
    store.close()


def test_a_silent_listener_cannot_hold_a_worker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = Rendezvous(Address(*silent.getsockname()[:2]), 0.2)
        with pytest.raises(LocalGroupError, match="TimeoutError"):
            store.get("0/1")
        store.close()


def test_nobody_there_is_a_typed_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname()[:2])
    with pytest.raises(LocalGroupError, match="no rendezvous"):
        Rendezvous(address, 1.0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<BHI", 1, 3, MAX_VALUE + 1) + b"key",
        struct.pack("<BHI", 1, 60000, 0),
        struct.pack("<BHI", 9, 1, 0) + b"k",
    ],
)
def test_garbage_is_hung_up_on_and_harms_nobody(server: RendezvousServer, garbage: bytes) -> None:
    with socket.create_connection(server.address, 5.0) as stranger:
        stranger.sendall(garbage)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    store = Rendezvous(server.address, 5.0)
    store.set("k", b"v")
    assert store.get("k") == b"v"
    store.close()
