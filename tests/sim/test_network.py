"""The transports keep asyncio's promises, and paths break as TCP's do."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Coroutine
from typing import Any

import pytest

from ictp2p.errors import AddressInUse, AddressNotOurs, Refused, Unreachable
from ictp2p.types import Address
from ictp2p.wire import FrameKind, FrameReader, frame
from sim.chance import Chance
from sim.inbox import _read
from sim.internet import Internet
from sim.loop import Process, SimLoop
from sim.network import SimNetwork
from sim.patience import KEEPALIVE, USER_TIMEOUT
from sim.topology import Barrier, Topology

A, B = Address("10.0.0.1", 7000), Address("10.0.0.2", 7000)


class Caught(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost: list[tuple[float, Exception | None]] = []
        self.paused = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append((asyncio.get_running_loop().now, exc))  # type: ignore[attr-defined]

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.paused -= 1


class Buffered(asyncio.BufferedProtocol):
    def __init__(self, size: int) -> None:
        self.buffer, self.data = bytearray(size), b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += bytes(self.buffer[:nbytes])


class Pair:
    """Two hosts and one connection from a to b."""

    def __init__(self, **link: float) -> None:
        self.loop = SimLoop()
        self.topology = Topology()
        for name, value in link.items():
            setattr(self.topology.default, name, value)
        self.net = Internet(self.loop, Chance(1), self.topology)
        self.processes = {}
        for name, address in (("a", A), ("b", B)):
            self.net.host(name, name, address.host)
            self.processes[name] = Process(name)
            self.net.boot(name, self.processes[name])
        self.dialer, self.acceptor = Caught(), Caught()

    def as_(self, host: str, story: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(self.loop.create_task(story, context=self.processes[host].context))

    def network(self, host: str) -> SimNetwork:
        return SimNetwork(self.net, self.processes[host])

    def connect(self) -> Pair:
        self.as_("b", self.network("b").serve(lambda: self.acceptor, B))
        self.as_("a", self.network("a").connect(lambda: self.dialer, B, 5))
        self.loop.run_to(self.loop.now + 1)
        return self

    def kill(self, host: str, *, power: bool) -> None:
        process = self.processes[host]
        process.alive = False
        self.net.stopped(process, power=power)
        self.loop.kill(process)


def test_a_dial_takes_a_round_trip_and_both_ends_show_the_same_addresses() -> None:
    pair = Pair(delay=0.05)
    pair.as_("b", pair.network("b").serve(lambda: pair.acceptor, B))
    pair.as_("a", pair.network("a").connect(lambda: pair.dialer, B, 5))
    assert pair.loop.now == pytest.approx(0.1)
    pair.loop.run_to(1)
    here, there = pair.dialer.transport, pair.acceptor.transport
    assert here.get_extra_info("sockname") == there.get_extra_info("peername")
    assert here.get_extra_info("peername") == tuple(B)


def test_what_is_written_behind_what_holds_up_a_process_leaves_after_it() -> None:
    pair = Pair(delay=0.01).connect()
    loop, process, transport = pair.loop, pair.processes["a"], pair.dialer.transport

    def act() -> None:
        transport.write(b"before ")
        loop.block(process, 1.0)
        transport.write(b"after ")
        transport.write(b"it")
        transport.close()

    start = loop.now
    loop.at(start, act, context=process.context)
    loop.run_to(start + 0.99)
    assert pair.acceptor.data == b"before "
    loop.run_to(start + 1.1)
    assert pair.acceptor.data == b"before after it"
    assert [error for _, error in pair.acceptor.lost] == [None]


@pytest.mark.parametrize("power", [True, False])
def test_what_a_process_had_not_come_to_when_it_was_killed_does_not_leave(power: bool) -> None:
    pair = Pair(delay=0.01).connect()
    loop, process = pair.loop, pair.processes["a"]

    def act() -> None:
        loop.block(process, 1.0)
        pair.dialer.transport.write(b"after")

    start = loop.now
    loop.at(start, act, context=process.context)
    loop.run_to(start + 0.5)
    pair.kill("a", power=power)
    loop.run_to(start + 2.0)
    assert pair.acceptor.data == b""


def test_bytes_keep_their_order_whatever_the_jitter() -> None:
    pair = Pair(delay=0.01, jitter=0.05, loss=0.2).connect()
    for n in range(50):
        pair.dialer.transport.write(bytes([n]))
    pair.loop.run_to(60)
    assert pair.acceptor.data == bytes(range(50))


def test_reads_end_anywhere_and_give_whatever_is_there() -> None:
    """As a kernel's do: who cuts a stream into messages may not rely upon where the other side's writes ended."""
    pair = Pair(delay=0.01).connect()
    reads: list[bytes] = []
    pair.acceptor.data_received = reads.append  # type: ignore[method-assign]
    writes = [frame(FrameKind.MESSAGE, bytes([n]) * n) for n in range(256)]
    for message in writes * 4:
        pair.dialer.transport.write(message)
    pair.loop.run_to(60)
    assert b"".join(reads) == b"".join(writes * 4)
    assert len([read for read in reads if read not in writes]) > 20
    reader = FrameReader()
    counts = [len(reader.feed(read)) for read in reads]
    assert sum(counts) == len(writes * 4)
    assert min(counts) == 0
    assert max(counts) > 1


def test_nobody_listens_nobody_answers_no_way() -> None:
    pair = Pair()
    with pytest.raises(Refused):
        pair.as_("a", pair.network("a").connect(Caught, B, 2))
    pair.topology.cut(Barrier("a", "b"))
    with pytest.raises(Unreachable, match="did not answer"):
        pair.as_("a", pair.network("a").connect(Caught, B, 2))
    pair.topology.mend_all()
    pair.topology.cut(Barrier("a", "b", how="reset"))
    began = pair.loop.now
    with pytest.raises(Unreachable):
        pair.as_("a", pair.network("a").connect(Caught, B, 2))
    assert pair.loop.now - began < 1


def test_a_nat_lets_nobody_in_but_lets_out() -> None:
    pair = Pair()
    pair.topology.sites["b"].nat = True
    pair.as_("b", pair.network("b").serve(lambda: pair.acceptor, B))
    with pytest.raises(Unreachable):
        pair.as_("a", pair.network("a").connect(Caught, B, 2))
    pair.as_("a", pair.network("a").serve(Caught, A))
    pair.as_("b", pair.network("b").connect(Caught, A, 2))


def test_a_port_is_taken_once() -> None:
    pair = Pair().connect()
    with pytest.raises(AddressInUse):
        pair.as_("b", pair.network("b").serve(Caught, B))
    with pytest.raises(AddressNotOurs):
        pair.as_("b", pair.network("b").serve(Caught, A))


def test_close_delivers_all_and_ends_both_without_an_error() -> None:
    pair = Pair().connect()
    pair.dialer.transport.write(b"x" * 100_000)
    pair.dialer.transport.close()
    pair.loop.run_to(10)
    assert len(pair.acceptor.data) == 100_000
    assert [e for _, e in pair.acceptor.lost] == [e for _, e in pair.dialer.lost] == [None]
    assert not pair.net.endpoints


def test_abort_resets_the_other_side() -> None:
    pair = Pair().connect()
    pair.dialer.transport.abort()
    pair.loop.run_to(10)
    assert isinstance(pair.acceptor.lost[0][1], ConnectionResetError)
    assert not pair.net.endpoints


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_buffered_protocol_gets_every_byte_in_pieces_of_its_own_size(size: int) -> None:
    pair = Pair(bandwidth=1e6).connect()
    taker = Buffered(size)
    pair.acceptor.transport.set_protocol(taker)
    sent = bytes(range(256)) * (1 if size < 100 else 400)
    pair.dialer.transport.write(sent)
    pair.loop.run_to(20)
    assert taker.data == sent


class Uncopied(Buffered):
    def buffer_updated(self, nbytes: int) -> None:
        """All of it is in the buffer."""


def test_a_read_copies_what_it_gives_once() -> None:
    """It was sliced first, as most reads of a body are, behind its head: one of three copies of all that is moved."""
    data, taker = b"head" + bytes(range(256)) * 4096, Uncopied(2**20)
    tracemalloc.start()
    try:
        _read(taker, data, 4, len(data))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taker.buffer == data[4:]
    assert most < 2**16


def test_a_reader_that_stops_makes_the_writer_pause_and_go_on() -> None:
    pair = Pair(bandwidth=1e7).connect()
    pair.acceptor.transport.pause_reading()
    for _ in range(20):
        pair.dialer.transport.write(bytes(100_000))
    pair.loop.run_to(10)
    assert pair.dialer.paused == 1
    pair.acceptor.transport.resume_reading()
    pair.loop.run_to(20)
    assert pair.dialer.paused == 0
    assert len(pair.acceptor.data) == 2_000_000
    assert pair.dialer.transport.get_write_buffer_size() == 0


def test_a_silent_path_is_given_up_sooner_if_something_is_unacknowledged() -> None:
    pair = Pair().connect()
    pair.topology.cut(Barrier("a", "b"))
    pair.net.changed()
    began = pair.loop.now
    pair.dialer.transport.write(b"hello?")
    pair.loop.run_to(began + 60)
    assert pair.dialer.lost[0][0] - began == pytest.approx(USER_TIMEOUT)
    assert pair.acceptor.lost[0][0] - began == pytest.approx(KEEPALIVE)
    assert pair.acceptor.data == b""


@pytest.mark.parametrize("one_way", [False, True])
def test_what_was_sent_into_a_short_cut_arrives_in_order_once_it_heals(one_way: bool) -> None:
    pair = Pair().connect()
    barrier = Barrier("a", "b", one_way=one_way)
    pair.topology.cut(barrier)
    pair.net.changed()
    for n in range(5):
        pair.dialer.transport.write(bytes([n]))
    pair.loop.run_to(pair.loop.now + 5)
    assert pair.acceptor.data == b""
    pair.topology.mend(barrier)
    pair.net.changed()
    pair.loop.run_to(pair.loop.now + 10)
    assert pair.acceptor.data == bytes(range(5))
    assert not pair.dialer.lost


@pytest.mark.parametrize(("size", "most"), [(1, 3), (1_000_000, 400_000)])
def test_who_gets_no_acknowledgments_falls_silent_until_the_path_is_whole_again(size: int, most: int) -> None:
    """Regression: it was heard for as long as its kernel waited, 15 s, and coordinated while it heard nobody."""
    pair = Pair(bandwidth=1e6).connect()
    back = Barrier("b", "a", one_way=True)
    pair.topology.cut(back)
    pair.net.changed()
    for n in range(10):
        pair.dialer.transport.write(bytes([n]) * size)
        pair.loop.run_to(pair.loop.now + 0.5)
    early = len(pair.acceptor.data)
    assert 0 < early <= most, "what left before TCP's first timeout"
    pair.topology.mend(back)
    pair.net.changed()
    pair.loop.run_to(pair.loop.now + 20)
    assert pair.acceptor.data == b"".join(bytes([n]) * size for n in range(10))
    pair.dialer.transport.write(b"more")
    pair.loop.run_to(pair.loop.now + 1)
    assert pair.acceptor.data.endswith(b"more")
    assert not pair.dialer.lost


@pytest.mark.parametrize("told", [True, False])
def test_a_connection_that_is_forgotten_is_dead_while_others_work(told: bool) -> None:
    pair = Pair().connect()
    dead, living = (pair.dialer, pair.acceptor), (Caught(), Caught())
    began, ends = pair.loop.now, iter(living[1:])
    pair.net.listeners[B].factory = lambda: next(ends)
    pair.loop.perform(lambda: pair.net.forget_between(lambda here, there: True, 0.999, told=told))
    pair.as_("a", pair.network("a").connect(lambda: living[0], B, 5))
    pair.net.changed()
    for one in (dead[0], living[0]):
        one.transport.write(b"still there?")
    pair.loop.run_to(began + 1)
    assert [bool(end.lost) for end in dead] == [told, told]
    pair.loop.run_to(began + KEEPALIVE + 1)
    assert (dead[1].data, living[1].data) == (b"", b"still there?")
    assert [bool(end.lost) for end in (*dead, *living)] == [True, True, False, False]


def test_of_what_was_leaving_as_a_connection_was_forgotten_nothing_more_arrives() -> None:
    pair = Pair(bandwidth=1e6, delay=0.0005).connect()
    pair.dialer.transport.write(bytes(2_000_000))
    pair.loop.run_to(pair.loop.now + 0.5)
    pair.loop.perform(lambda: pair.net.forget_between(lambda here, there: True, 0.999, told=False))
    pair.loop.run_to(pair.loop.now + 0.01)
    arrived = len(pair.acceptor.data)
    assert arrived < 1_000_000
    pair.loop.run_to(pair.loop.now + 5)
    assert len(pair.acceptor.data) == arrived


def test_a_killed_process_is_told_of_by_its_kernel_and_a_dark_host_is_not() -> None:
    pair = Pair().connect()
    began = pair.loop.now
    pair.loop.perform(lambda: pair.kill("b", power=False))
    pair.loop.run_to(began + 1)
    assert pair.dialer.lost
    dark = Pair().connect()
    began = dark.loop.now
    dark.loop.perform(lambda: dark.kill("b", power=True))
    dark.loop.run_to(began + 10)
    assert not dark.dialer.lost
    dark.processes["b"] = Process("b")
    dark.loop.perform(lambda: dark.net.boot("b", dark.processes["b"]))
    dark.dialer.transport.write(b"still there?")
    dark.loop.run_to(began + 12)
    assert isinstance(dark.dialer.lost[0][1], ConnectionResetError)


def test_bulk_shares_a_link_and_trickles_in() -> None:
    pair = Pair(bandwidth=1e6, delay=0.0005).connect()
    began = pair.loop.now
    pair.dialer.transport.write(bytes(2_000_000))
    pair.loop.run_to(began + 1)
    assert 0.7e6 < len(pair.acceptor.data) < 1.01e6
    pair.loop.run_to(began + 2.1)
    assert len(pair.acceptor.data) == 2_000_000


def test_a_flipped_bit_ends_a_control_connection() -> None:
    pair = Pair(corrupt=0.999).connect()
    pair.dialer.transport.write(b"\x1c\x7bhello")
    pair.loop.run_to(10)
    assert pair.acceptor.data == b""
    assert pair.acceptor.lost
    assert pair.dialer.lost


def test_control_messages_that_fit_in_a_window_leave_one_after_another_at_the_rate_of_the_line() -> None:
    pair = Pair(delay=0.1, bandwidth=10_000.0).connect()
    sent_at = pair.loop.now
    pair.dialer.transport.write(bytes(10_000))
    pair.dialer.transport.write(bytes(10_000))
    arrived = []
    for after in (1.05, 1.15, 2.05, 2.15):
        pair.loop.run_to(sent_at + after)
        arrived.append(len(pair.acceptor.data))
    assert arrived == [0, 10_000, 10_000, 20_000]
