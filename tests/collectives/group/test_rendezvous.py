from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from ictp2p.collectives.group import rendezvous
from ictp2p.collectives.group.rendezvous import MAX_VALUE, Rendezvous, RendezvousServer
from ictp2p.errors import AddressNotOurs, LocalGroupError
from ictp2p.types import Address
from tests.interrupts import interrupted, places


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


def test_wherever_an_abort_comes_all_ends_with_its_reason_then_or_with_what_follows(server: RendezvousServer) -> None:
    def act(store: Rendezvous) -> None:
        store.set("0/1", b"value")
        assert (store.get("0/1"), store.check(["0/1"])) == (b"value", True)

    def ended(at: int) -> list[str]:
        """How that ended with an abort at that place, if by an error, and how what followed."""
        errors = []
        with contextlib.closing(Rendezvous(server.address, 600.0)) as store:  # longer than this test may take
            for place in (at, 0):
                try:
                    with interrupted(place, lambda: store.abort("member 3 died"), rendezvous):
                        act(store)
                except LocalGroupError as error:
                    errors.append(str(error).rpartition(": ")[-1])
        return errors

    with contextlib.closing(Rendezvous(server.address, 600.0)) as store:
        everywhere = places(lambda: act(store), rendezvous)
    found = [ended(at) for at in everywhere]
    assert {why for errors in found for why in errors} == {"member 3 died"}
    assert {len(errors) for errors in found} == {1, 2}


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


def hung_up(stranger: socket.socket) -> bool:
    """Wait until the server has hung up."""
    with contextlib.suppress(ConnectionResetError):
        return stranger.recv(1) == b""
    return True


def joined(server: RendezvousServer) -> int:
    """Come in, as soon as the server has seen that somebody left; give how many have."""
    while True:
        newcomer = Rendezvous(server.address, 5.0)
        with contextlib.closing(newcomer), contextlib.suppress(LocalGroupError):
            return newcomer.add("here", 1)


def test_strangers_take_no_more_places_than_a_cluster_has_members(
    server: RendezvousServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each had a thread of the leader's, and there was no end to them."""
    monkeypatch.setattr(rendezvous, "MAX_CLIENTS", 3)
    members = [Rendezvous(server.address, 5.0) for _ in range(3)]
    for n, member in enumerate(members):
        assert member.add("here", 1) == n + 1
    with socket.create_connection(server.address, 5.0) as stranger:
        assert hung_up(stranger)
    assert members[0].add("here", 1) == 4
    for member in members:
        member.close()
    assert joined(server) == 5


@pytest.mark.parametrize("said", [b"", b"\1", struct.pack("<BHI", 1, 1, 9) + b"kvalue"])
def test_who_makes_no_request_is_hung_up_on(
    server: RendezvousServer, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """Regression: it had a thread of the leader's as long as it liked."""
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.1)
    with socket.create_connection(server.address, 5.0) as stranger:
        stranger.sendall(said)
        assert hung_up(stranger)


def test_a_trickle_is_no_request(server: RendezvousServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is that of all of the request, not of each byte of it."""
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.2)
    with socket.create_connection(server.address, 0.05) as stranger:
        stranger.sendall(struct.pack("<BHI", 1, 1, MAX_VALUE) + b"k")
        ended, sent = False, 0
        while not ended and sent < 100:
            try:
                sent += stranger.send(b"v")
                ended = stranger.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert sent < 100


def test_who_has_made_a_request_may_be_silent(server: RendezvousServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's library keeps its connection; and a member may wait long for a value."""
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.1)
    monkeypatch.setattr(rendezvous, "_LOOK", 0.01)
    silent, waiting = Rendezvous(server.address, 5.0), Rendezvous(server.address, 5.0)
    assert not silent.check(["k"])

    def publish() -> None:
        late = Rendezvous(server.address, 5.0)
        late.set("k", b"v")
        late.close()

    threading.Timer(0.3, publish).start()
    assert waiting.get("k") == b"v"
    assert silent.check(["k"])
    for member in (silent, waiting):
        member.close()


def test_who_leaves_while_it_waits_leaves_its_place(server: RendezvousServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else strangers could take all of them, and not even have to keep a connection for each."""
    monkeypatch.setattr(rendezvous, "MAX_CLIENTS", 1)
    monkeypatch.setattr(rendezvous, "_LOOK", 0.01)
    with socket.create_connection(server.address, 5.0) as stranger:
        stranger.sendall(struct.pack("<BHI", 2, 1, 0) + b"k")
    assert joined(server) == 1


def test_what_is_kept_has_a_limit_and_who_would_pass_it_is_hung_up_on(
    server: RendezvousServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: one stranger had the leader keep 4 GiB."""
    monkeypatch.setattr(rendezvous, "MAX_KEPT", most := 10 * MAX_VALUE)
    values = server._server.values
    stranger, member = Rendezvous(server.address, 5.0), Rendezvous(server.address, 5.0)
    member.set("k", bytes(MAX_VALUE))
    assert member.check(["k"])  # a `set` has no answer: it is kept before the stranger's are
    with contextlib.suppress(LocalGroupError):
        for n in range(20):
            stranger.set(f"{n}", bytes(MAX_VALUE))
            assert stranger.check([f"{n}"])
    held = sum(len(key) + len(value) for key, value in values.items())
    assert most - MAX_VALUE - 256 <= held <= most
    for _ in range(3):  # what takes the place of another counts once, and what is forgotten not at all
        member.set("k", bytes(MAX_VALUE))
        assert member.check(["k"])
    assert member.delete_key("k")
    assert not member.delete_key("k")
    member.set("another", bytes(MAX_VALUE - len("another")))
    assert member.check(["another"])
    assert server._server._kept == sum(len(key) + len(value) for key, value in values.items())
    stranger.close()
    member.close()
