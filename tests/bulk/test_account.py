"""What the kernel counts of a connection, on real sockets of this machine."""

from __future__ import annotations

import ctypes
import socket
import sys

import pytest

from ictp2p.bulk import kernel, tuning
from ictp2p.bulk.account import Account, account
from tests.bulk.conftest import Ended, MemoryTransport

linux = pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")


class Deaf:
    """A socket to which nothing comes through: its filter lets no byte of a packet pass (`SO_ATTACH_FILTER`)."""

    def __init__(self, endpoint: socket.socket) -> None:
        self._endpoint = endpoint
        self._rule = ctypes.create_string_buffer(b"\x06" + bytes(7), 8)  # BPF_RET, of no bytes

    def __enter__(self) -> None:
        program = ctypes.c_ushort(1), ctypes.addressof(self._rule)
        packed = bytes(program[0]).ljust(ctypes.sizeof(ctypes.c_void_p), b"\0") + bytes(ctypes.c_void_p(program[1]))
        self._endpoint.setsockopt(socket.SOL_SOCKET, 26, packed)

    def __exit__(self, *_: object) -> None:
        self._endpoint.setsockopt(socket.SOL_SOCKET, 27, 0)


@linux
def test_the_kernel_counts_what_held_a_connection_back_and_is_asked_over_long_ways(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = pair
    transport = Ended(near)
    far.settimeout(10.0)
    near.sendall(bytes(100_000))
    assert far.recv(1), "something was on its way"
    assert account(transport) is None, "it is near"
    monkeypatch.setattr(tuning, "NEARBY", 0.0)
    before = near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    found = account(transport)
    after = near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    assert found is not None
    for seconds, at in ((found.busy, 168), (found.held, 184)):  # tcpi_busy_time and tcpi_sndbuf_limited
        least, most = (int.from_bytes(info[at : at + 8], sys.byteorder) / 1e6 for info in (before, after))
        assert least <= seconds <= most
    assert found.round_trips > 0
    near.close()
    assert account(transport) is None


@linux
@pytest.mark.parametrize(("control", "losses"), [(b"reno", 1), (b"bbr", 0)])
def test_the_kernel_counts_what_was_lost_where_that_closes_a_window(
    control: bytes, losses: int, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = pair
    far.settimeout(10.0)
    monkeypatch.setattr(tuning, "NEARBY", 0.0)
    monkeypatch.setattr(kernel, "control", lambda transport: control)
    near.sendall(b"passes")
    assert far.recv(6) == b"passes"
    before = account(Ended(near))
    with Deaf(far):
        near.sendall(b"is lost")
    assert far.recv(7) == b"is lost", "sent again"
    after = account(Ended(near))
    assert after is not None
    spent = after.since(before)
    assert (spent.lost, spent.packets) == (losses, 2)
    assert spent.seconds > 0


def test_a_transport_without_a_socket_may_give_an_account_by_itself() -> None:
    transport = MemoryTransport()
    assert account(transport) is None
    transport._extra = {"account": (2.0, 1.5, 1.0, 0.1, 20.0, 1.0)}
    assert account(transport) == Account(2.0, 1.5, 1.0, 0.1, 20.0, 1.0)
    later = Account(5.0, 2.0, 1.25, 0.2, 50.0, 3.0)
    assert later.since(account(transport)) == (3.0, 0.5, 1.25, 0.2, 30.0, 2.0)
    assert later.since(None) == later
