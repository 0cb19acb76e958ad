"""Frames to a peer's process are sent whole, once and in order, whatever interrupts whoever writes them."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.handle import framing, outbox
from ictp2p.handle.outbox import Outbox
from tests.interrupts import ctrl_c, interrupted, places


class Narrow:
    """A socket that takes a few bytes at a time."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.got = b""
        self.descriptors: list[int] = []
        self.closed = False

    def send(self, data: memoryview) -> int:
        if self.closed:
            raise BrokenPipeError
        taken = bytes(data[: self.width])
        self.got += taken
        return len(taken)

    def sendmsg(self, data: list[memoryview], rights: list[tuple[int, int, Any]]) -> int:
        self.descriptors.append(os.fstat(rights[0][2][0]).st_ino)
        return self.send(data[0])


def box(to: Narrow) -> Outbox:
    return Outbox(to)  # type: ignore[arg-type]


def frame(number: int, body: bytes) -> bytes:
    return framing.HEADER.pack(len(body), number) + body


def read(data: bytes) -> list[tuple[int, bytes]]:
    frames = framing.Frames()
    found = list(frames.take(data))
    assert not frames._held, "the line ends within a frame"
    return found


FIRST, LATER, HANDLERS = frame(1, b"x" * 20), frame(2, b"later"), frame(3, b"a handler's")


def everywhere() -> range:
    """The numbers of all places where a handler may run while a frame is sent."""
    line = box(Narrow(8))
    return places(lambda: line.put(FIRST), outbox)


def test_an_interrupt_tears_no_frame_wherever_it_comes() -> None:
    """Regression: what was left of a frame was lost, and the next one was read as the rest of it."""
    said = set()
    for at in everywhere():
        to = Narrow(8)
        line = box(to)
        with pytest.raises(KeyboardInterrupt), interrupted(at, ctrl_c, outbox):
            line.put(FIRST)
        line.put(LATER)
        found = read(to.got)
        assert found in ([(1, b"x" * 20), (2, b"later")], [(2, b"later")])
        said.add(len(found))
    assert said == {1, 2}, "it came before the frame was said, and after"


@pytest.mark.timeout(20)  # else it waits for itself
def test_a_handler_that_says_something_waits_for_nobody_and_is_heard() -> None:
    for at in everywhere():
        to = Narrow(8)
        line = box(to)

        def handler(line: Outbox = line) -> None:
            line.put(HANDLERS)

        with interrupted(at, handler, outbox):
            line.put(FIRST)
        assert sorted(read(to.got)) == [(1, b"x" * 20), (3, b"a handler's")]


def test_a_handler_that_says_something_and_raises_is_heard_with_the_next_frame() -> None:
    for at in everywhere():
        to = Narrow(8)
        line = box(to)

        def handler(line: Outbox = line) -> None:
            line.put(HANDLERS)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), interrupted(at, handler, outbox):
            line.put(FIRST)
        line.put(LATER)
        found = read(to.got)
        assert [one for one in found if one[0] != 1] == [(3, b"a handler's"), (2, b"later")]
        assert found.count((1, b"x" * 20)) <= 1


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # one that was not said yet is closed by the collector
def test_a_descriptor_goes_along_once_and_is_closed_wherever_an_interrupt_comes() -> None:
    for at in everywhere():
        to = Narrow(8)
        line = box(to)
        descriptor = os.memfd_create("x")
        inode = os.fstat(descriptor).st_ino
        with pytest.raises(KeyboardInterrupt), interrupted(at, ctrl_c, outbox):
            line.put(FIRST, descriptor)
        line.put(LATER)
        if (1, b"x" * 20) in read(to.got):
            assert to.descriptors == [inode]
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        else:
            assert to.descriptors == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_nobody_reads_is_dropped_wherever_an_interrupt_comes() -> None:
    for at in everywhere():
        to = Narrow(8)
        line = box(to)
        line.put(LATER)
        to.closed = True
        descriptor = os.memfd_create("x")
        try:
            with interrupted(at, ctrl_c, outbox):
                line.put(FIRST, descriptor)
        except KeyboardInterrupt:
            line.put(FIRST)
        assert read(to.got) == [(2, b"later")]


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 50))
def test_frames_arrive_in_order_through_any_socket(bodies: list[bytes], width: int) -> None:
    to = Narrow(width)
    line = box(to)
    for number, body in enumerate(bodies):
        line.put(frame(number, body))
    assert read(to.got) == list(enumerate(bodies))


def test_threads_lose_and_tear_nothing() -> None:
    ours, theirs = socket.socketpair()
    line, got = Outbox(ours), bytearray()

    def say(who: int) -> None:
        for n in range(50):
            line.put(frame(who, bytes([n]) * 10_000))

    def hear() -> None:
        while data := theirs.recv(1 << 16):
            got.extend(data)

    hearing = threading.Thread(target=hear)
    threads = [threading.Thread(target=say, args=(who,)) for who in range(3)]
    with ours, theirs:
        for thread in (hearing, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        ours.shutdown(socket.SHUT_WR)
        hearing.join()
    found = read(bytes(got))
    for who in range(3):
        assert [body for number, body in found if number == who] == [bytes([n]) * 10_000 for n in range(50)]
