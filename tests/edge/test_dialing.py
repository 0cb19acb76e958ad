"""Dialing: what each attempt says of an address, how long it may take, and that it leaves nothing behind."""

import asyncio
import errno
import socket
import ssl

import pytest

from ictp2p.edge.happy_eyeballs import places
from ictp2p.edge.network import TcpNetwork, ended, is_ours, translate
from ictp2p.errors import ConnectionLost, NetworkError, Refused, Unreachable
from ictp2p.types import Address, shown_address
from tests.edge.caught import LOOPBACK, NETWORK, Caught, failed
from tests.garbage import uncollected


def test_a_port_where_nobody_listens_is_refused_and_that_is_told_apart_from_silence(run):
    async def story() -> None:
        with socket.socket() as unlistened:
            unlistened.bind(("127.0.0.1", 0))
            with pytest.raises(Refused, match="nobody listens there"):
                await NETWORK.connect(Caught, shown_address(unlistened.getsockname()), 5)

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


ANSWERS = {
    "silent": lambda: asyncio.get_running_loop().create_future(),
    "refuses": lambda: failed(ConnectionRefusedError(errno.ECONNREFUSED, "x")),
    "no way": lambda: failed(OSError(errno.ENETUNREACH, "Network is unreachable")),
}


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
