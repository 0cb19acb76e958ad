"""Two connections joined: a reader may be slow, as long as it reads."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.bulk import kernel
from ictp2p.bulk.pacing import Watch
from ictp2p.bulk.splice import splice
from tests.bulk.conftest import TURN, MemoryTransport, run_turns

SIZE = 2_000_000
"""Bytes: more than a relay holds."""
STALL = 1000 * TURN


class Reader(asyncio.BufferedProtocol):
    """Counts what comes, and notes its end."""

    def __init__(self) -> None:
        self.got = 0
        self.ended = self.broken = False
        self._room = memoryview(bytearray(64 * 1024))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.got += nbytes

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended, self.broken = True, exc is not None


class Spliced:
    """A sender, a relay and a reader; `onward` is the relay's end of the way to the reader."""

    def __init__(self, step: int) -> None:
        ends = [MemoryTransport() for _ in range(4)]
        self.sender, incoming, self.onward, outgoing = ends
        for one, two in ((self.sender, incoming), (self.onward, outgoing)):
            one.other, two.other = two, one
        self.onward.step = step
        self.reader = Reader()
        outgoing.set_protocol(self.reader)
        self.gone = False
        self.shrunk: list[str] = []
        splice(incoming, self.onward, STALL, self._ended, self.shrunk.append)

    def _ended(self) -> None:
        self.gone = True


@given(
    step=st.integers(60, 400),
    pauses=st.lists(st.floats(0.1, 0.7), max_size=3),
    leaves=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_who_reads_slowly_gets_everything(step: int, pauses: list[float], leaves: bool) -> None:
    """At these rates a relay's buffer takes many deadlines to run empty, and the reader pauses now and then besides."""

    async def story() -> None:
        relay = Spliced(step)
        relay.sender.write(bytes(SIZE))
        if leaves:
            relay.sender.close()
        for pause in pauses:
            await asyncio.sleep(STALL)
            relay.onward.frozen = True
            await asyncio.sleep(pause * STALL)
            relay.onward.frozen = False
            relay.onward._wake()
        while relay.reader.got < SIZE and not relay.gone:
            await asyncio.sleep(STALL)
        assert relay.reader.got == SIZE

    run_turns(story())


@given(taken=st.integers(0, SIZE // 2), leaves=st.booleans())
@settings(max_examples=10, deadline=None)
def test_who_takes_nothing_any_more_is_cut_off_after_the_deadline(taken: int, leaves: bool) -> None:
    async def story() -> None:
        relay = Spliced(20_000)
        relay.sender.write(bytes(SIZE))
        if leaves:
            relay.sender.close()
        while relay.reader.got < taken:
            await asyncio.sleep(0)
        relay.onward.frozen = True
        await asyncio.sleep(0.7 * STALL)
        assert not relay.gone
        await asyncio.sleep(0.7 * STALL)
        assert relay.gone
        assert relay.reader.ended
        assert relay.shrunk, "its packets may have been too large"

    run_turns(story())


@pytest.mark.parametrize("end", ["closes", "resets", "reads nothing"])
def test_whoever_is_behind_a_relay_hears_how_it_ended(end: str) -> None:
    """Regression: a reset became an orderly end, as of one who had said all, and others waited for what was lost."""

    async def story() -> None:
        relay, sender = Spliced(20_000), Reader()
        relay.sender.set_protocol(sender)
        relay.sender.write(bytes(SIZE if end == "reads nothing" else 1000))
        relay.onward.frozen = end == "reads nothing"
        await asyncio.sleep(20 * TURN)
        if end == "closes":
            relay.sender.close()
        elif end == "resets":
            relay.sender.abort()
        await asyncio.sleep(2 * STALL)
        assert relay.gone
        other = sender if end == "reads nothing" else relay.reader
        assert (other.ended, other.broken) == (True, end != "closes")

    run_turns(story())


@pytest.mark.parametrize("full", [True, False])
def test_another_relay_that_has_no_room_is_given_up_only_once_nobody_talks_behind_it(
    full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: before a slow line a relay takes nothing for longer than a deadline. What is lost is not full."""

    async def story() -> None:
        relay = Spliced(20_000)
        monkeypatch.setattr(kernel, "is_full", lambda transport: full and transport is relay.onward)
        relay.sender.set_protocol(Reader())
        relay.sender.write(bytes(SIZE))
        relay.onward.frozen = True
        reader = relay.onward.other
        for look in range(4 * Watch.CHECKS):
            assert full or look < 2 * Watch.CHECKS, "what it says does not hide that nothing passes"
            reader.write(b"I am here")
            await asyncio.sleep(STALL / Watch.CHECKS)
            if relay.gone:
                break
        assert relay.gone == (not full)
        await asyncio.sleep(1.3 * STALL)
        assert relay.gone

    run_turns(story())


class OnSocket(asyncio.Transport):
    """A transport of which only the socket is asked for."""

    def __init__(self, endpoint: socket.socket) -> None:
        super().__init__(extra={"socket": endpoint})


@contextlib.contextmanager
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection; the first one does not wait."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        one.setblocking(False)
        two, _ = server.accept()
        with two:
            yield one, two


@pytest.mark.skipif(sys.platform != "linux", reason="others do not say")
def test_what_the_kernel_keeps_counts_as_not_taken_until_the_other_end_acknowledges_it() -> None:
    with sockets() as (one, two):
        sent = 0
        while True:
            try:
                sent += one.send(bytes(64 * 1024))
            except BlockingIOError:
                break
        assert 0 < kernel.unacknowledged(OnSocket(one)) <= sent
        while sent:
            sent -= len(two.recv(min(sent, 1 << 20)))
        while kernel.unacknowledged(OnSocket(one)):
            """The last acknowledgement may be on its way."""
    assert kernel.unacknowledged(OnSocket(one)) == 0, "closed"
    assert kernel.unacknowledged(MemoryTransport()) == 0, "no socket"


@pytest.mark.skipif(sys.platform != "linux", reason="others do not say")
def test_a_reader_is_full_while_its_kernel_has_no_room_for_what_ours_has() -> None:
    with sockets() as (one, two):
        assert not kernel.is_full(OnSocket(one)), "nothing waits"
        sent = 0
        while not kernel.is_full(OnSocket(one)):
            try:
                sent += one.send(bytes(64 * 1024))
            except BlockingIOError:
                """The last acknowledgement may be on its way."""
        while sent:
            sent -= len(two.recv(min(sent, 1 << 20)))
        assert not kernel.is_full(OnSocket(one))
    assert not kernel.is_full(OnSocket(one)), "closed"
    assert not kernel.is_full(MemoryTransport()), "no socket"
