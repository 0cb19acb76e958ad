"""Control connections that stand: what arrives, in which order, and how they end."""

import asyncio
import socket
import struct

import pytest

from ictp2p.edge.control import ControlConnection, Limits, open_control
from ictp2p.edge.reception import serve
from ictp2p.edge.security import Security
from ictp2p.errors import (
    ConnectionLost,
    RemoteProtocolError,
)
from ictp2p.wire import MAX_CONTROL_BODY, FrameKind, frame
from tests.couple import ALICE, BOB, LOOPBACK, NETWORK, PLAIN_ALICE, PLAIN_BOB, Couple, Party
from tests.garbage import uncollected


def test_each_side_knows_the_other_and_where_it_is(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            assert (alice.connection.peer_id, bob.connection.peer_id) == (BOB.peer_id, ALICE.peer_id)
            assert (alice.connection.process, bob.connection.process) == (BOB.process, ALICE.process)
            assert (alice.connection.dialed, bob.connection.dialed) == (True, False)
            assert alice.connection.address == bob.connection.local
            assert alice.connection.local == bob.connection.address
            assert repr(alice.connection) == f"<ControlConnection {BOB.peer_id} {alice.connection.address} open>"
            for party in (alice, bob):
                assert party.connection._transport.get_extra_info("ssl_object").version() == "TLSv1.3"

    run(story())


@pytest.mark.parametrize(("a", "b"), [(ALICE, BOB), (PLAIN_ALICE, PLAIN_BOB)], ids=["tls", "plain"])
def test_frames_of_all_sizes_arrive_in_order_both_ways(run, a: Security, b: Security):
    async def story() -> None:
        sizes = [0, 1, 7, 8, 16_384, 65_536, MAX_CONTROL_BODY, 3]
        sent = [bytes([number]) * size for number, size in enumerate(sizes)]
        async with Couple(a, b) as (alice, bob):
            alice.start(), bob.start()
            for sender, receiver in ((alice, bob), (bob, alice)):
                assert all(sender.connection.send(body) for body in sent)
                assert [await receiver.frames.get() for _ in sent] == sent

    run(story())


def test_what_comes_before_start_waits_for_it(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            bob.start()
            bob.connection.send(b"one")
            bob.connection.send(b"two")
            alice.connection.send(b"go")
            assert await bob.frames.get() == b"go"
            alice.start()
            assert [await alice.frames.get(), await alice.frames.get()] == [b"one", b"two"]

    run(story())


def test_an_end_that_came_before_start_is_told_after_it(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            bob.start()
            alice.connection.send(b"last words")
            alice.connection.close()
            assert await bob.frames.get() == b"last words"
            bob.connection.close()
            await bob.closed
            alice.start()
            assert await alice.closed is None

    run(story())


def test_an_orderly_close_delivers_what_was_sent_and_then_says_so(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            alice.start(), bob.start()
            for number in range(50):
                alice.connection.send(bytes([number]) * 10_000)
            alice.connection.close()
            alice.connection.close()
            assert not alice.connection.send(b"too late")
            assert not alice.connection.is_open
            assert [(await bob.frames.get())[0] for _ in range(50)] == list(range(50))
            assert isinstance(await bob.closed, ConnectionLost)
            assert await alice.closed is None
            assert "closed>" in repr(alice.connection)

    run(story())


def test_an_event_loop_may_end_as_soon_as_its_connections_are_closed(run):
    async def story() -> None:
        accepted: asyncio.Queue[ControlConnection] = asyncio.Queue()
        reception = await serve(NETWORK, LOOPBACK, BOB, on_control=accepted.put_nowait)
        both = [await open_control(NETWORK, reception.address, ALICE), await accepted.get()]
        for connection in both:
            Party(connection).start()
            connection.close()
        await reception.close()
        for connection in both:
            await connection.wait_closed()

    run(story())


def test_a_peer_that_vanishes_is_a_lost_connection_at_once(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            alice.start(), bob.start()
            alice.connection.abort()
            assert isinstance(await bob.closed, ConnectionLost)
            assert not bob.connection.send(b"into the void")

    run(story())


def test_a_reset_is_a_lost_connection(run):
    async def story() -> None:
        async with Couple(PLAIN_ALICE, PLAIN_BOB) as (alice, bob):
            alice.start(), bob.start()
            sock = alice.connection._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            alice.connection.abort()
            reason = await bob.closed
            assert isinstance(reason, ConnectionLost)
            assert "reset" in str(reason)

    run(story())


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (frame(FrameKind.MESSAGE, b"")[:4] + b"\xff\xff\xff\xff", "over the limit"),
        (b"GET / HTTP/1.1\r\n", "expected a frame"),
        (frame(FrameKind.HELLO, bytes(48)), "unexpected HELLO"),
    ],
    ids=["oversize", "garbage", "second hello"],
)
def test_a_peer_that_breaks_the_protocol_is_dropped_with_the_reason(run, bad: bytes, words: str):
    async def story() -> None:
        async with Couple() as (alice, bob):
            alice.start(), bob.start()
            alice.connection._transport.write(frame(FrameKind.MESSAGE, b"still good"))
            alice.connection._transport.write(bad)
            reason = await bob.closed
            assert isinstance(reason, RemoteProtocolError)
            assert words in str(reason)
            assert isinstance(await alice.closed, ConnectionLost)

    run(story())


def test_a_frame_that_its_receiver_cannot_accept_drops_the_connection_and_nothing_follows(run):
    async def story() -> None:
        seen: list[bytes] = []

        def picky(body: bytes) -> None:
            seen.append(body)
            if body == b"forged":
                raise RemoteProtocolError("forged record")

        async with Couple() as (alice, bob):
            alice.start(), bob.start(picky)
            alice.connection._transport.write(
                b"".join(frame(FrameKind.MESSAGE, body) for body in (b"good", b"forged", b"after"))
            )
            reason = await bob.closed
            assert (type(reason), str(reason)) == (RemoteProtocolError, "forged record")
            assert seen == [b"good", b"forged"]

    run(story())


@pytest.mark.parametrize("early", [False, True], ids=["live", "early"])
def test_nothing_is_delivered_after_the_receiver_closed(run, early: bool):
    async def story() -> None:
        seen: list[bytes] = []

        def enough(body: bytes) -> None:
            seen.append(body)
            bob.connection.abort()

        async with Couple() as (alice, bob):
            alice.start()
            burst = b"".join(frame(FrameKind.MESSAGE, body) for body in (b"one", b"two", b"three"))
            if early:
                bob.connection.data_received(burst)
            bob.start(enough)
            if not early:
                alice.connection._transport.write(burst)
            assert await bob.closed is None
            assert seen == [b"one"]

    run(story())


def test_a_connection_that_has_ended_leaves_nothing_to_the_garbage_collector(run):
    """Regression: each left a cycle with its TLS, a quarter of a megabyte, and there were hundreds."""

    async def ended() -> None:
        async with Couple() as (alice, bob):
            for party in (alice, bob):
                party.start(lambda frame, owner=party: owner.connection.send(frame))
            alice.connection.send(b"there and back, until it ends")

    async def story() -> None:
        with uncollected(ControlConnection) as left:
            await ended()
            await asyncio.sleep(0)  # the step that woke us is over
        assert left == []

    run(story())


def test_an_error_that_nobody_expects_out_of_an_early_frame_ends_the_connection(run):
    """Regression: it stayed open for as long as the other side was there, and nobody read."""

    async def story() -> None:
        def broken(body: bytes) -> None:
            raise ZeroDivisionError

        async with Couple() as (alice, bob):
            bob.start()
            alice.connection.data_received(frame(FrameKind.MESSAGE, b"with HELLO"))
            with pytest.raises(ZeroDivisionError):
                alice.start(broken)
            await asyncio.shield(alice.closed)
            await asyncio.shield(bob.closed)

    run(story())


def test_early_frames_count_though_they_are_empty(run):
    async def story() -> None:
        async with Couple(limits=Limits(buffered=100)) as (alice, bob):
            alice.start()
            bob.connection.data_received(20 * frame(FrameKind.MESSAGE, b""))
            bob.start()
            assert "before the handshake ended" in str(await bob.closed)

    run(story())
