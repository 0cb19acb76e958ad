"""When a connection is woken for what has come, on real sockets of this machine."""

from __future__ import annotations

import gc
import select
import socket
import sys

import pytest

from ictp2p.bulk import kernel
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.wakeups import FAR_GATHER, GATHER, Wakeups
from ictp2p.errors import ConnectionLost
from tests.bulk.conftest import Ended

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")


def readable(endpoint: socket.socket) -> bool:
    return bool(select.select([endpoint], [], [], 0)[0])


def test_a_body_gathers_until_it_is_whole_or_enough(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    wakeups = Wakeups(Ended(near))
    wakeups.expect(1000)
    far.sendall(bytes(999))
    assert not readable(near)
    far.sendall(bytes(1))
    assert readable(near)
    wakeups.expect(5000)
    assert not readable(near)
    wakeups.relax()
    assert readable(near)
    wakeups.expect(10**9)
    assert near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == GATHER


def test_a_number_is_borrowed_and_left_to_whoever_has_it_next(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    wakeups = Wakeups(Ended(near))
    wakeups.expect(1000)
    wakeups.end()
    wakeups.expect(2000)
    assert near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1000
    Wakeups(Ended(near)).expect(10)
    gc.collect()
    far.sendall(bytes(10))
    assert len(near.recv(10)) == 10, "dropped, it did not close what it had borrowed"


async def test_a_connection_that_ended_asks_nothing_of_a_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    class Nobody:
        def closed(self, *_: object) -> None: ...

    connection = BulkConnection(Nobody(), lambda: 0.0, 4.0, 1 << 20, None)  # type: ignore[arg-type]
    connection.connection_made(Ended(pair[0]))
    connection.fail(ConnectionLost("over"))
    connection._wakeups.expect(100_000)
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


async def test_a_trickle_is_not_taken_for_silence(pair: tuple[socket.socket, socket.socket]) -> None:
    class User:
        def next_frame(self) -> None: ...
        def expecting(self) -> bool:
            return True

    connection = BulkConnection(None, lambda: 0.0, 4.0, 1 << 20, None)  # type: ignore[arg-type]
    connection.connection_made(Ended(pair[0]))
    connection.join(User())  # type: ignore[arg-type]
    connection._wakeups.expect(100_000)
    pair[1].sendall(bytes(10))
    connection._liveness.look()
    assert readable(pair[0]), "ten bytes of a hundred thousand wait, and the watch would see none"
    connection._liveness.end()


def test_over_a_long_way_wake_ups_are_for_less_than_the_first_window(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "round_trip", lambda transport: 0.1)
    Wakeups(Ended(pair[0])).expect(10**9)
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == FAR_GATHER < 64 * 1024
