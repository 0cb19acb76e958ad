import asyncio
import contextlib
import errno
import os
import socket
import ssl
import sys
from collections.abc import Iterator

import pytest

import ictp2p.edge.network
from ictp2p.concurrency.forks import made_alone
from ictp2p.edge.happy_eyeballs import places
from ictp2p.edge.network import TcpNetwork, ended, is_ours, translate
from ictp2p.errors import AddressInUse, AddressNotOurs, ConnectionLost, NetworkError, Refused, Unreachable
from ictp2p.types import Address, shown_address
from tests.garbage import uncollected

LOOPBACK = Address("127.0.0.1", 0)
NETWORK = TcpNetwork()


class Caught(asyncio.Protocol):
    """Notes its transport and what came."""

    def __init__(self) -> None:
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.set_result(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


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


def test_a_taken_port_is_named_and_free_again_once_it_is_closed(run):
    async def story() -> None:
        listener = await NETWORK.serve(Caught, LOOPBACK)
        with pytest.raises(AddressInUse, match=f"cannot listen on {listener.address}"):
            await NETWORK.serve(Caught, listener.address)
        listener.close()
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)  # a closed server's socket goes next turn
        (await NETWORK.serve(Caught, listener.address)).close()

    run(story())


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """A fork of this process that lives on for as long, as the workers of a `DataLoader` do."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            theirs.send(b"?")
            theirs.recv(1)
            os._exit(0)
        try:
            ours.recv(1)
            yield
        finally:
            ours.send(b"!")
            os.waitpid(child, 0)  # it has been told


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


def test_a_port_where_nobody_listens_is_refused_and_that_is_told_apart_from_silence(run):
    async def story() -> None:
        with socket.socket() as unlistened:
            unlistened.bind(("127.0.0.1", 0))
            with pytest.raises(Refused, match="nobody listens there"):
                await NETWORK.connect(Caught, shown_address(unlistened.getsockname()), 5)

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


@pytest.mark.parametrize("turns", range(10))
def test_who_gives_up_dialing_leaves_nothing_open(run, turns: int):
    """However the turns of the loop fall (the fixture looks)."""

    async def story() -> None:
        accepted: list[Caught] = []
        listener = await NETWORK.serve(lambda: accepted.append(Caught()) or accepted[-1], LOOPBACK)
        dialing = asyncio.get_running_loop().create_task(NETWORK.connect(Caught, listener.address, 5))
        for _ in range(turns):
            await asyncio.sleep(0)
        dialing.cancel()
        await asyncio.wait([dialing])
        if not dialing.cancelled():
            transport, dialer = dialing.result()
            transport.abort()
            await dialer.lost
        listener.close()
        await listener.settled()
        for each in accepted:
            each.made.result().abort()
            await each.lost

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


def test_a_host_that_does_not_answer_costs_no_more_than_the_deadline(run):
    async def story() -> None:
        with socket.socket() as deaf, socket.socket() as first:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            first.connect(deaf.getsockname())  # fills the queue: Linux then ignores further attempts
            with pytest.raises(Unreachable, match=r"did not answer within 0\.3 s") as caught:
                await NETWORK.connect(Caught, shown_address(deaf.getsockname()), 0.3)
            assert not isinstance(caught.value, Refused)

    run(story())


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_name_that_cannot_be_is_unreachable_and_cannot_be_listened_on(run, host: str):
    async def story() -> None:
        with pytest.raises(Unreachable, match="cannot connect to"):
            await NETWORK.connect(Caught, Address(host, 7000), 5)
        with pytest.raises(Unreachable, match="cannot listen on"):
            await NETWORK.serve(Caught, Address(host, 7000))

    run(story())


@pytest.mark.parametrize(
    ("words", "kind"),
    [("can't start new thread", Unreachable), ("cannot schedule new futures after shutdown", RuntimeError)],
)
async def test_that_no_thread_can_look_up_a_name_is_said_of_it(
    words: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was no error of ours, and whoever dials expects no other. A mistake of our own stays one."""

    async def fails(*_: object, **__: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fails)
    with pytest.raises(kind, match=words):
        await NETWORK.connect(Caught, Address("worker-3.example", 7000), 5)
    with pytest.raises(kind, match=words):
        await NETWORK.serve(Caught, Address("worker-3.example", 7000))


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


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), Refused, "nobody listens"),
        (ConnectionResetError(errno.ECONNRESET, "x"), ConnectionLost, "was reset"),
        (BrokenPipeError(errno.EPIPE, "x"), ConnectionLost, "was reset"),
        (OSError(errno.EADDRNOTAVAIL, "no local port"), Unreachable, "no local port"),
        (OSError(errno.EACCES, "a firewall said so"), Unreachable, "a firewall said so"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), Unreachable, "No route to host"),
        (TimeoutError(errno.ETIMEDOUT, "timed out"), Unreachable, "timed out"),
        (socket.gaierror(socket.EAI_NONAME, "Name not known"), Unreachable, "Name not known"),
        (RuntimeError(), Unreachable, "RuntimeError"),
    ],
)
def test_what_a_failed_attempt_means(error: BaseException, kind: type[NetworkError], words: str):
    translated = translate(error, "dialing x")
    assert type(translated) is kind
    assert str(translated).startswith("dialing x: ")
    assert words in str(translated)


@pytest.mark.parametrize("number", [errno.EADDRINUSE, errno.EACCES])
def test_an_address_to_listen_on_that_is_taken_is_named(number: int):
    translated = translate(OSError(number, "x"), "listening", listening=True)
    assert type(translated) is AddressInUse
    assert os.strerror(number) in str(translated)


async def test_an_address_to_listen_on_that_another_machine_has_is_said_to_be_that():
    """Regression: it was `AddressInUse`, with the words of the system, though nobody used it."""
    with pytest.raises(AddressNotOurs, match=r"listen on 203\.0\.113\.1:7001: not an address of this machine"):
        await TcpNetwork().serve(asyncio.Protocol, Address("203.0.113.1", 7001))


ANSWERS = {
    "silent": lambda: asyncio.get_running_loop().create_future(),
    "refuses": lambda: failed(ConnectionRefusedError(errno.ECONNREFUSED, "x")),
    "no way": lambda: failed(OSError(errno.ENETUNREACH, "Network is unreachable")),
}


def failed(error: OSError) -> asyncio.Future[None]:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


async def test_an_address_that_means_something_on_one_link_alone_keeps_its_link(monkeypatch: pytest.MonkeyPatch):
    """Regression: who announces itself by such an address alone (RFC 6762) could not be dialed by its name."""
    loop = asyncio.get_running_loop()
    index = socket.if_nametoindex("lo")

    async def found(*_, **__):  # type: ignore[no-untyped-def]
        local = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 7450, 0, index))
        return [local, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 7450))]

    monkeypatch.setattr(loop, "getaddrinfo", found)
    near = await places(Address("near.local", 7450))
    assert near == [(socket.AF_INET6, f"fe80::1%{index}"), (socket.AF_INET, "192.0.2.7")]
    monkeypatch.undo()
    known = await loop.getaddrinfo(near[0][1], 7450, type=socket.SOCK_STREAM)
    assert [where for *_, where in known] == [("fe80::1", 7450, 0, index)]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["silent", "takes"], None),
        (["no way", "silent", "refuses", "takes"], None),
        (["refuses", "no way"], Refused),
        (["no way", "refuses"], Refused),
        (["refuses", "silent"], Unreachable),
        (["silent", "refuses"], Unreachable),
    ],
)
async def test_each_address_of_a_host_gets_its_chance(
    answers: list[str], kind: type[NetworkError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the first one that was silent took its part of all the time there was."""
    loop = asyncio.get_running_loop()
    listener = await NETWORK.serve(Caught, LOOPBACK)
    real = loop.sock_connect

    async def found(address: Address) -> list[tuple[int, str]]:
        return [(socket.AF_INET, answer) for answer in answers]

    async def connected(sock: socket.socket, where: tuple[str, int]) -> None:
        host, port = where
        await (ANSWERS[host]() if host in ANSWERS else real(sock, ("127.0.0.1", port)))

    monkeypatch.setattr("ictp2p.edge.happy_eyeballs.places", found)
    monkeypatch.setattr(loop, "sock_connect", connected)
    if kind is None:
        transport, protocol = await NETWORK.connect(Caught, listener.address, 1000.0)
        transport.abort()
        await protocol.lost
    else:
        with pytest.raises(Unreachable) as raised:
            await NETWORK.connect(Caught, listener.address, 0.2)
        assert type(raised.value) is kind
    listener.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "the other side closed the connection"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "was reset"),
        (BrokenPipeError(errno.EPIPE, "x"), "was reset"),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "Connection timed out"),
        (ssl.SSLError(1, "bad record mac"), "bad record mac"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_a_connection_that_ended_is_lost_whatever_ended_it(error: BaseException | None, words: str):
    assert type(ended(error, "peer x")) is ConnectionLost
    assert str(ended(error, "peer x")).startswith("peer x: ")
    assert words in str(ended(error, "peer x"))


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("127.0.0.1", 7), Address("127.0.0.1", 7)),
        (("::1", 7, 0, 0), Address("::1", 7)),
        (("::ffff:192.0.2.7", 7, 0, 0), Address("192.0.2.7", 7)),
        (None, Address("unknown", 0)),
        ("", Address("unknown", 0)),
    ],
)
def test_addresses_are_what_the_connection_shows(name: object, address: Address):
    assert shown_address(name) == address


def test_a_dial_that_fails_leaves_nothing_to_the_garbage_collector(run):
    """Regression: a peer dials the dead again and again, and each failure was a cycle of forty objects."""

    async def failed() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = Address(*server.getsockname())
        with pytest.raises(Refused):
            await TcpNetwork().connect(asyncio.Protocol, address, 5.0)

    async def story() -> None:
        with uncollected(socket.socket, OSError) as left:
            await failed()
            await asyncio.sleep(0)  # the step that woke us is over
        assert left == []

    run(story())


@pytest.mark.parametrize(
    ("host", "ours"), [("127.0.0.1", True), ("192.0.2.1", False), ("2001:db8::1", False), ("no address", True)]
)
def test_whether_an_address_is_one_of_this_machine_is_asked_of_the_system(host: str, ours: bool):
    assert is_ours(host) == ours
