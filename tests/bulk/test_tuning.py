"""What is asked of the kernel, on real sockets of this machine."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import tuning
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Hello, Purpose
from ictp2p.collectives.running.windows import AHEAD_BYTES
from ictp2p.concurrency import logs
from ictp2p.errors import ConnectionLost
from ictp2p.types import PeerId
from tests.bulk.conftest import MemoryTransport

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")


class Ended(asyncio.Transport):
    """Has a socket, and sends nothing."""

    def __init__(self, endpoint: socket.socket) -> None:
        super().__init__({"socket": endpoint})
        self.write_limits: tuple[int | None, int | None] | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.write_limits = high, low

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        """Drop it."""

    def abort(self) -> None:
        """Leave the socket to the test."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            yield near, far


def readable(endpoint: socket.socket) -> bool:
    return bool(select.select([endpoint], [], [], 0)[0])


def test_a_short_round_trip_is_measured_and_gets_cubic(pair: tuple[socket.socket, socket.socket]) -> None:
    transport = Ended(pair[0])
    seconds = tuning.round_trip(transport)
    assert seconds is not None
    assert 0 < seconds < tuning.NEARBY
    pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    tuning.suit(transport)
    assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"cubic"


def test_a_long_round_trip_gets_bbr_or_keeps_what_it_has(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "round_trip", lambda transport: 0.1)
    pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    tuning.suit(Ended(pair[0]))
    assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") in (b"bbr", b"reno")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux")
def test_the_kernel_ends_nobody_for_want_of_room_before_we_see_whether_it_lives(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Regression: after 15 s without it a relay before a slow line was taken for dead."""
    pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000)
    tuning.suit(Ended(pair[0]))
    assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) >= 300_000


def test_the_kernel_paces_a_connection_and_lets_it_go(pair: tuple[socket.socket, socket.socket]) -> None:
    def limit() -> int:
        return int.from_bytes(pair[0].getsockopt(socket.SOL_SOCKET, tuning._SO_MAX_PACING_RATE, 8), sys.byteorder)

    before = limit()
    assert tuning.pace(Ended(pair[0]), 6e9)
    assert limit() == 6_000_000_000
    assert tuning.pace(Ended(pair[0]), None)
    assert limit() == before
    assert not tuning.pace(MemoryTransport(), 6e9)


def test_a_body_gathers_until_it_is_whole_or_enough(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    wakeups = tuning.Wakeups(Ended(near))
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
    assert near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == tuning.GATHER


def test_a_number_is_borrowed_and_left_to_whoever_has_it_next(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    wakeups = tuning.Wakeups(Ended(near))
    wakeups.expect(1000)
    wakeups.end()
    wakeups.expect(2000)
    assert near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1000
    tuning.Wakeups(Ended(near)).expect(10)
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


async def test_only_a_direct_connection_is_limited_in_what_runs_ahead(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    def opened(transport: asyncio.Transport, purpose: Purpose) -> BulkConnection:
        names = PeerId("0" * 32), PeerId("1" * 32)
        connection = BulkConnection(None, lambda: 0.0, 4.0, 1 << 20, Hello(purpose, *names, bytes(32)))  # type: ignore[arg-type]
        connection.connection_made(transport)
        return connection

    direct = opened(Ended(pair[0]), Purpose.DIRECT).ahead()
    assert direct is not None
    assert AHEAD_BYTES < direct < 2 * AHEAD_BYTES + tuning.NEARBY * 1e10
    assert opened(Ended(pair[0]), Purpose.RELAY).ahead() is None
    assert opened(MemoryTransport(), Purpose.DIRECT).ahead() is None


def test_a_long_way_has_room_in_both_directions(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (socket.SO_RCVBUF, socket.SO_SNDBUF)
    near = [pair[0].getsockopt(socket.SOL_SOCKET, option) for option in options]
    monkeypatch.setattr(tuning, "round_trip", lambda transport: 0.1)
    tuning.suit(Ended(pair[0]))
    far = [pair[0].getsockopt(socket.SOL_SOCKET, option) for option in options]
    most = int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[2])
    assert far[0] >= max(near[0], min(tuning.FAR_WINDOW, most // 2))
    assert far[1] >= min(near[1], tuning.FAR_WINDOW)
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


@pytest.mark.parametrize("limit", [0, 1 << 40])
def test_the_kernel_tunes_on_only_where_that_widens_what_we_were_allowed(
    limit: int, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the lesser of its own limit and of what it wants, also where the buffer was wider."""
    monkeypatch.setattr(tuning, "round_trip", lambda transport: 0.1)
    monkeypatch.setattr(tuning, "_tuned_up_to", lambda: limit)
    tuning.suit(Ended(pair[0]))
    assert (pair[0].getsockopt(socket.SOL_SOCKET, tuning._SO_BUF_LOCK) == 0) == (limit > 0)


def test_the_limit_of_the_kernels_tuning_is_read_from_the_host() -> None:
    assert tuning._tuned_up_to() == int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])


def test_a_short_way_keeps_the_kernels_buffers(pair: tuple[socket.socket, socket.socket]) -> None:
    before = [pair[0].getsockopt(socket.SOL_SOCKET, o) for o in (socket.SO_RCVBUF, socket.SO_SNDBUF)]
    tuning.suit(Ended(pair[0]))
    assert before == [pair[0].getsockopt(socket.SOL_SOCKET, o) for o in (socket.SO_RCVBUF, socket.SO_SNDBUF)]


@given(st.floats(0, 1e12))
def test_what_is_kept_bridges_a_pause_and_is_bounded(rate: float) -> None:
    kept = tuning.unsent(rate)
    assert tuning.UNSENT <= kept <= tuning.MOST_UNSENT
    assert kept >= min(int(rate * tuning.PAUSE), tuning.MOST_UNSENT)
    assert kept == tuning.UNSENT or kept <= rate * tuning.PAUSE


def kept_unsent(endpoint: socket.socket) -> int:
    return endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)


@pytest.mark.parametrize("rate", [0, 100_000_000, 1 << 40])
def test_over_a_long_way_the_kernel_keeps_what_bridges_our_pauses_at_the_rate_that_it_has_seen(
    rate: int, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept_unsent(pair[0])
    tuning.refill(Ended(pair[0]))
    assert kept_unsent(pair[0]) == before, "a short way keeps what the host says"
    monkeypatch.setattr(tuning, "_least_round_trip", lambda info: 0.1)
    monkeypatch.setattr(tuning, "_DELIVERY", SimpleNamespace(size=8, unpack_from=lambda info, at: (rate,)))
    tuning.refill(Ended(pair[0]))
    assert kept_unsent(pair[0]) == tuning.unsent(rate)


@pytest.mark.parametrize("rate", [0, 300_000, 5_000_000, 1_000_000_000])
@pytest.mark.parametrize(("control", "several"), [("cubic", True), ("cubic", False), ("bbr", True)])
def test_one_of_several_that_reacts_to_losses_takes_no_more_than_it_sends_soon(
    rate: int, control: str, several: bool, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each took seconds' worth of what others could have sent, and the results waited for it."""
    monkeypatch.setattr(tuning, "_least_round_trip", lambda info: 0.1)
    monkeypatch.setattr(tuning, "control", lambda transport: control.encode())
    monkeypatch.setattr(tuning, "_DELIVERY", SimpleNamespace(size=8, unpack_from=lambda info, at: (rate,)))
    held = tuning.refill(Ended(pair[0]), one_of_several=several)
    if control == "bbr" or not several:
        assert held is None
        assert kept_unsent(pair[0]) == tuning.unsent(rate)
    else:
        assert held == kept_unsent(pair[0])
        assert held == min(max(tuning.LITTLE, tuning.SOON * rate), tuning.unsent(rate))


def test_that_bbr_is_not_to_be_had_over_a_long_way_is_said_once(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tuning._warn_of_losses.cache_clear()
    monkeypatch.setattr(tuning, "_FAR_CONTROL", b"unheard-of")
    monkeypatch.setattr(tuning, "_NEAR_CONTROL", b"unheard-of")
    tuning.suit(Ended(pair[0]))
    logs.flush()
    assert not caplog.records, "over a short way it makes no difference"
    monkeypatch.setattr(tuning, "round_trip", lambda transport: 0.1)
    for _ in range(2):
        tuning.suit(Ended(pair[0]))
    logs.flush()
    (record,) = caplog.records
    assert "tcp_allowed_congestion_control" in record.getMessage()


def test_the_rate_is_the_one_that_the_kernel_has_seen(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    for _ in range(64):
        near.sendall(bytes(65536))
        for _ in range(64):
            far.recv(1024, socket.MSG_WAITALL)
    info = near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (rate,) = tuning._DELIVERY.unpack_from(info, tuning._DELIVERY_AT)
    assert 1e4 < rate < 1e12


def test_a_connection_that_is_used_again_is_kept_busy_by_what_it_showed_before(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def used() -> None:
        names = PeerId("0" * 32), PeerId("1" * 32)
        connection = BulkConnection(None, lambda: 0.0, 4.0, 1 << 20, Hello(Purpose.DIRECT, *names, bytes(32)))  # type: ignore[arg-type]
        connection.connection_made(Ended(pair[0]))
        monkeypatch.setattr(tuning, "_least_round_trip", lambda info: 0.1)
        connection.heed(None)  # type: ignore[arg-type]

    asyncio.run(used())
    assert kept_unsent(pair[0]) == tuning.UNSENT


def test_over_a_long_way_wake_ups_are_for_less_than_the_first_window(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "round_trip", lambda transport: 0.1)
    tuning.Wakeups(Ended(pair[0])).expect(10**9)
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == tuning.FAR_GATHER < 64 * 1024


@pytest.mark.parametrize(
    ("seconds", "control", "rate", "gains"),
    [
        (0.1, "reno", 1e5, True),
        (0.1, "bbr", 1e5, False),
        (0.1, "bbr", tuning.FAT / 0.1, True),
        (tuning.NEARBY, "reno", 1e12, False),
        (None, "reno", 1e12, False),
    ],
)
def test_more_connections_may_gain_on_long_ways_that_hold_much_or_are_not_bbrs(
    seconds: float | None,
    control: str,
    rate: float,
    gains: bool,
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "round_trip", lambda transport: seconds)
    try:
        pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    except OSError:
        pytest.skip(f"no {control} here")
    assert tuning.may_gain(Ended(pair[0]), rate) is gains


@pytest.mark.parametrize(("granted", "gains"), [(tuning.FAR_WINDOW - 1, True), (2 * tuning.FAR_WINDOW, False)])
@pytest.mark.parametrize("control", ["bbr", "cubic"])
def test_more_connections_gain_nothing_where_the_host_allows_one_all_that_it_asks_for(
    granted: int, gains: bool, control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a short probe over four shows more than one over one, and four pushed each other aside."""
    monkeypatch.setattr(tuning, "round_trip", lambda transport: 0.1)
    monkeypatch.setattr(tuning, "control", lambda transport: control.encode())
    endpoint = SimpleNamespace(getsockopt=lambda level, option: granted)
    monkeypatch.setattr(tuning, "tcp_socket", lambda transport: endpoint)
    assert tuning.may_gain(MemoryTransport(), 2 * tuning.FAT / 0.1) is (gains or control == "cubic")


def test_what_is_no_socket_gains_nothing() -> None:
    assert not tuning.may_gain(MemoryTransport(), 1e12)
    assert not tuning.exceeds_buffers(MemoryTransport(), 1e12)


def test_more_on_its_way_than_a_buffer_holds_is_not_bounded_by_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "round_trip", lambda transport: 0.1)
    monkeypatch.setattr(tuning, "_tuned_up_to", lambda: 4 << 20)
    assert not tuning.exceeds_buffers(MemoryTransport(), 20 * (4 << 20))
    assert tuning.exceeds_buffers(MemoryTransport(), 20 * (4 << 20) + 1)
