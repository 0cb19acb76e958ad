"""What is asked of the kernel, on real sockets of this machine."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import kernel, tuning
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Hello, Purpose
from ictp2p.collectives.running.windows import AHEAD_BYTES
from ictp2p.concurrency import logs
from ictp2p.types import PeerId
from tests.bulk.conftest import Ended, MemoryTransport

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")


def test_a_short_round_trip_is_measured_and_gets_cubic(pair: tuple[socket.socket, socket.socket]) -> None:
    transport = Ended(pair[0])
    seconds = kernel.round_trip(transport)
    assert seconds is not None
    assert 0 < seconds < tuning.NEARBY
    pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    tuning.suit(transport)
    assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"cubic"


def test_a_long_round_trip_gets_bbr_or_keeps_what_it_has(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "round_trip", lambda transport: 0.1)
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
    monkeypatch.setattr(kernel, "round_trip", lambda transport: 0.1)
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
    monkeypatch.setattr(kernel, "round_trip", lambda transport: 0.1)
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
    monkeypatch.setattr(kernel, "least_trip_of", lambda info: 0.1)
    monkeypatch.setattr(kernel, "_DELIVERY", SimpleNamespace(size=8, unpack_from=lambda info, at: (rate,)))
    tuning.refill(Ended(pair[0]))
    assert kept_unsent(pair[0]) == tuning.unsent(rate)


@pytest.mark.parametrize("rate", [0, 300_000, 5_000_000, 1_000_000_000])
@pytest.mark.parametrize(("control", "several"), [("cubic", True), ("cubic", False), ("bbr", True)])
def test_one_of_several_that_reacts_to_losses_takes_no_more_than_it_sends_soon(
    rate: int, control: str, several: bool, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each took seconds' worth of what others could have sent, and the results waited for it."""
    monkeypatch.setattr(kernel, "least_trip_of", lambda info: 0.1)
    monkeypatch.setattr(kernel, "control", lambda transport: control.encode())
    monkeypatch.setattr(kernel, "_DELIVERY", SimpleNamespace(size=8, unpack_from=lambda info, at: (rate,)))
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
    monkeypatch.setattr(kernel, "round_trip", lambda transport: 0.1)
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
    (rate,) = kernel._DELIVERY.unpack_from(info, kernel._DELIVERY_AT)
    assert 1e4 < rate < 1e12


def test_a_connection_that_is_used_again_is_kept_busy_by_what_it_showed_before(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def used() -> None:
        names = PeerId("0" * 32), PeerId("1" * 32)
        connection = BulkConnection(None, lambda: 0.0, 4.0, 1 << 20, Hello(Purpose.DIRECT, *names, bytes(32)))  # type: ignore[arg-type]
        connection.connection_made(Ended(pair[0]))
        monkeypatch.setattr(kernel, "least_trip_of", lambda info: 0.1)
        connection.heed(None)  # type: ignore[arg-type]

    asyncio.run(used())
    assert kept_unsent(pair[0]) == tuning.UNSENT


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
    monkeypatch.setattr(kernel, "round_trip", lambda transport: seconds)
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
    monkeypatch.setattr(kernel, "round_trip", lambda transport: 0.1)
    monkeypatch.setattr(kernel, "control", lambda transport: control.encode())
    endpoint = SimpleNamespace(getsockopt=lambda level, option: granted)
    monkeypatch.setattr(kernel, "tcp_socket", lambda transport: endpoint)
    assert tuning.may_gain(MemoryTransport(), 2 * tuning.FAT / 0.1) is (gains or control == "cubic")


def test_what_is_no_socket_gains_nothing() -> None:
    assert not tuning.may_gain(MemoryTransport(), 1e12)
    assert not tuning.exceeds_buffers(MemoryTransport(), 1e12)


def test_more_on_its_way_than_a_buffer_holds_is_not_bounded_by_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "round_trip", lambda transport: 0.1)
    monkeypatch.setattr(tuning, "_tuned_up_to", lambda: 4 << 20)
    assert not tuning.exceeds_buffers(MemoryTransport(), 20 * (4 << 20))
    assert tuning.exceeds_buffers(MemoryTransport(), 20 * (4 << 20) + 1)
