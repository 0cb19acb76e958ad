"""Control connections whose other end is slow, silent or too quick: what is held for it is bounded."""

import asyncio
from dataclasses import replace

import pytest

from ictp2p.edge.control import Limits
from ictp2p.edge.security import Security
from ictp2p.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
)
from ictp2p.wire import MAX_CONTROL_BODY, FrameKind, frame
from tests.couple import ALICE, BOB, PLAIN_ALICE, PLAIN_BOB, Couple


def test_a_message_too_large_is_our_own_error_and_costs_the_connection_nothing(run):
    async def story() -> None:
        async with Couple() as (alice, bob):
            alice.start(), bob.start()
            with pytest.raises(LocalProtocolError):
                alice.connection.send(bytes(MAX_CONTROL_BODY + 1))
            alice.connection.send(b"next")
            assert await bob.frames.get() == b"next"

    run(story())


def test_what_we_get_wrong_over_a_message_is_not_told_as_its_senders_fault(run):
    async def story() -> None:
        def stumble(body: bytes) -> None:
            raise LocalProtocolError("too long an answer")

        async with Couple() as (alice, bob):
            alice.start(), bob.start(stumble)
            with pytest.raises(LocalProtocolError):
                bob.connection.data_received(frame(FrameKind.MESSAGE, b"question"))
            assert bob.connection._reason is None
            assert bob.connection.is_open

    run(story())


@pytest.mark.parametrize(("a", "b"), [(ALICE, BOB), (PLAIN_ALICE, PLAIN_BOB)], ids=["tls", "plain"])
def test_a_peer_that_stops_reading_fills_a_bounded_buffer_and_is_then_dropped(run, a: Security, b: Security):
    async def story() -> None:
        limits = Limits(buffered=1 << 20, drain=30)
        async with Couple(a, b, limits) as (alice, _):
            alice.start()  # bob never starts, so he never reads
            while alice.connection.send(bytes(100_000)):
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            assert alice.connection.dropped == 1
            assert alice.connection._transport.get_write_buffer_size() < limits.buffered + 2 * 100_000
            assert alice.connection._deadline is not None
            alice.connection._limits = replace(limits, drain=0.3)
            alice.connection.pause_writing()  # its time begins again, now that everything is full
            while not alice.closed.done():  # the kernel may find room for more, and be full again
                alice.connection.send(bytes(100_000))
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            reason = alice.closed.result()
            assert isinstance(reason, ConnectionLost)
            assert "did not read for 0.3 s" in str(reason)

    run(story())


def test_a_peer_that_catches_up_is_kept(run):
    async def story() -> None:
        async with Couple(limits=Limits(buffered=1 << 20, drain=30)) as (alice, bob):
            alice.start()
            sent = 0
            while alice.connection.send(bytes(100_000)):
                sent += 1
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            assert alice.connection._deadline is not None
            bob.start()
            for _ in range(sent):
                assert len(await bob.frames.get()) == 100_000
            assert alice.connection._deadline is None
            assert alice.connection.send(b"and on")
            assert await bob.frames.get() == b"and on"

    run(story())


def test_closing_does_not_wait_for_a_peer_that_does_not_read(run):
    async def story() -> None:
        async with Couple(limits=Limits(buffered=1 << 20, drain=30, close=0.2)) as (alice, _):
            alice.start()
            while alice.connection.send(bytes(100_000)):
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            alice.connection.close()
            await alice.connection.wait_closed()
            assert alice.closed.result() is None

    run(story())


def test_a_flood_before_start_is_bounded(run):
    async def story() -> None:
        async with Couple(PLAIN_ALICE, PLAIN_BOB, Limits(buffered=100)) as (_, bob):
            bob.connection.data_received(frame(FrameKind.MESSAGE, bytes(90)))
            assert bob.connection.is_open
            bob.connection.data_received(frame(FrameKind.MESSAGE, bytes(90)))
            bob.start()
            assert isinstance(await bob.closed, RemoteProtocolError)

    run(story())
