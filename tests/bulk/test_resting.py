"""How a connection that has rested is woken: what is asked of the kernel, and that it does what we ask it for."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import resting
from ictp2p.bulk.frames import Kind, pack_header
from tests.bulk.reducing import plan_of, reduce_all, tag

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")

Meshes = Callable[..., Any]
SEGMENT = 1448
MICROSECONDS, MILLISECONDS = st.integers(1000, 120_000_000), st.integers(0, 10_000_000)
DEADLINE = 30.0


class Endpoint:
    """A socket of which the test says how long it has been silent; knows whoever set a rate before."""

    family = socket.AF_INET

    def __init__(self, silence: int, timeout: int = 204_000, control: bytes = b"cubic", known: bool = True) -> None:
        self.silence, self.timeout, self.control, self.known = silence, timeout, control, known

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        if option == socket.TCP_CONGESTION:
            return self.control.ljust(size, b"\0")
        info = bytearray(size)
        for offset, value in ((8, self.timeout), (16, SEGMENT), (44, self.silence)):  # linux/tcp.h
            struct.pack_into("=I", info, offset, value)
        return bytes(info)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        if value == b"bbr" and not self.known:
            raise FileNotFoundError("no such congestion control")
        self.control = value


class Carrier(asyncio.Transport):
    """Has a socket."""

    def __init__(self, endpoint: Any) -> None:
        super().__init__({"socket": endpoint})
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@given(silence=MILLISECONDS, timeout=MICROSECONDS)
def test_a_connection_has_rested_after_a_retransmission_timeout_of_silence(silence: int, timeout: int) -> None:
    rated = Endpoint(silence, timeout, b"bbr")
    assert resting.wake(Carrier(rated)) == (2 * SEGMENT if silence * 1000 > timeout else 0)
    assert rated.control == b"bbr"


async def test_another_congestion_control_lends_the_connection_to_bbr_and_gets_it_back() -> None:
    for control in (b"cubic", b"reno"):
        endpoint = Endpoint(5000, control=control)
        resting.wake(Carrier(endpoint))
        resting.wake(Carrier(endpoint))  # who wakes it twice does not make bbr its own
        await turns(1)
        assert endpoint.control == b"bbr", (
            "uvloop writes at the end of a turn, perhaps after what was soon to be called"
        )
        await turns(2)
        assert endpoint.control == control


async def test_a_connection_that_has_not_rested_keeps_its_congestion_control() -> None:
    endpoint = Endpoint(100)
    assert resting.wake(Carrier(endpoint)) == 0
    assert endpoint.control == b"cubic"


async def test_a_host_without_bbr_keeps_what_it_has() -> None:
    endpoint = Endpoint(5000, known=False)
    assert resting.wake(Carrier(endpoint)) == 0
    await turns(3)
    assert endpoint.control == b"cubic"


async def test_nothing_is_handed_back_once_the_connection_is_closed() -> None:
    endpoint = Endpoint(5000)
    carrier = Carrier(endpoint)
    resting.wake(carrier)
    carrier.closing = True
    await turns(3)
    assert endpoint.control == b"bbr", "the number of a closed socket may be another one's by now"


async def test_the_first_message_of_a_collective_is_as_long_as_the_connection_needs(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, woken = mesh(2), []
    monkeypatch.setattr(resting, "REST", 0.0)
    monkeypatch.setattr(resting, "wake", lambda transport: woken.append(transport) or 2 * SEGMENT)
    inputs, outputs = [[torch.ones(100)] for _ in range(2)], [[torch.zeros(100)] for _ in range(2)]
    plan = plan_of(world.names, "ring", 100, 10)
    await reduce_all(world, plan, inputs, outputs, op="sum")
    assert all(bool((out == 2).all()) for (out,) in outputs)
    ends = [end for _, _, link in world.links for end in (link, link.other)]
    begun = pack_header(Kind.BEGIN, tag(plan).wire(), 0, 0, 2 * SEGMENT, False)[8:]  # behind what varies
    assert sum(begun in end.sent for end in ends) == 2
    assert len(woken) == 4, "before it begins, and when the other has begun, perhaps much later"


async def test_the_kernel_is_not_asked_about_a_rest_before_there_can_have_been_one(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mesh(2)
    connection = await world.bulks[world.names[0]].connection(world.names[1], 5)
    monkeypatch.setattr(resting, "wake", lambda transport: 2 * SEGMENT)
    connection._clock = lambda: 7.0
    connection.send(Kind.ALIVE)
    connection._clock = lambda: 7.0 + 0.9 * resting.REST
    assert connection.wake() == 0
    connection._clock = lambda: 7.0 + resting.REST
    assert connection.wake() == 2 * SEGMENT


async def test_a_first_message_over_a_relay_is_long_whatever_our_own_connection_needs(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "REST", 0.0)
    world = mesh(3)
    world.block((0, 2), (2, 0))
    world.deaf.update(world.names)
    world.via[world.names[0]] = [world.names[1]]
    relayed = await world.bulks[world.names[0]].connection(world.names[2], 5)
    direct = await world.bulks[world.names[0]].connection(world.names[1], 5)
    assert (relayed.wake(), direct.wake()) == (resting.RELAYED, 0)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as near:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)  # as no loopback has it
        near.connect(server.getsockname())
        far, _ = server.accept()
        with far:
            yield near, far


def told(endpoint: socket.socket, offset: int) -> int:
    info = endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("=I", info, offset)[0])


def window(endpoint: socket.socket) -> int:
    return told(endpoint, 80)


def rested(endpoint: socket.socket) -> None:
    """Wait until the kernel counts a connection as one that has rested."""
    until = time.monotonic() + DEADLINE
    while told(endpoint, 44) * 1000 <= told(endpoint, 8):
        assert time.monotonic() < until
        endpoint.settimeout(0.05)
        with pytest.raises(TimeoutError):
            endpoint.recv(1)  # nobody says anything
    endpoint.settimeout(None)


def carry(near: socket.socket, far: socket.socket, size: int) -> None:
    sender = threading.Thread(target=near.sendall, args=(bytes(size),))
    sender.start()
    while size:
        size -= len(far.recv(size))
    sender.join()


@pytest.mark.parametrize("wake", [True, False])
def test_the_kernel_keeps_the_window_of_a_connection_that_is_woken(
    pair: tuple[socket.socket, socket.socket], wake: bool
) -> None:
    near, far = pair
    try:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    except OSError:
        pytest.skip("this host lacks one of both, or keeps it from us")
    if not int(Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").read_text()):
        pytest.skip("this host lets all connections keep their windows")
    carry(near, far, 1 << 24)
    before = window(near)
    rested(near)

    async def story() -> None:
        if wake:
            resting.wake(Carrier(near))
        carry(near, far, 1)
        await turns(3)

    asyncio.run(story())
    assert (window(near) >= before) is wake, (before, window(near))
    assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
