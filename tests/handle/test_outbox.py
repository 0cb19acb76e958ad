"""Frames to a peer's process are sent whole, once and in order, and say no room or an interrupt what they will.

Nobody waits for room but who is there for it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.handle import framing, outbox
from ictp2p.handle.outbox import Outbox
from tests.interrupts import ctrl_c, interrupted, places


class Narrow:
    """A socket that takes a few bytes at a time, and has room for some; more is made for whoever waits for it."""

    def __init__(self, width: int, room: int = 1 << 30) -> None:
        self.width = width
        self.room = room
        self.meanwhile: Callable[[], object] = lambda: None
        """Done while somebody waits for room."""
        self.got = b""
        self.descriptors: list[int] = []
        self.closed = False

    def send(self, data: memoryview, flags: int) -> int:
        if self.closed:
            raise BrokenPipeError
        if flags & socket.MSG_DONTWAIT and not self.room:
            raise BlockingIOError
        if not flags:
            self.meanwhile()
        taken = bytes(data[: min(self.width, self.room or self.width)])
        self.room = max(0, self.room - len(taken))
        self.got += taken
        return len(taken)

    def sendmsg(self, data: list[memoryview], rights: list[tuple[int, int, Any]], flags: int) -> int:
        sent = self.send(data[0], flags)
        self.descriptors.append(os.fstat(rights[0][2][0]).st_ino)
        return sent


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


def everywhere(room: int = 1 << 30) -> range:
    """The numbers of all places where a handler may run while a frame is sent."""
    line = box(Narrow(8, room))
    return places(lambda: line.put(FIRST), outbox)


def rest(line: Outbox) -> None:
    """Have written what the thread that runs it was told of."""
    line.close()
    line.run()


anywhere = pytest.mark.parametrize("room", [1 << 30, 12, 0])
"""Where the room ends: after the first frame, in it, or before."""


@anywhere
def test_an_interrupt_tears_no_frame_wherever_it_comes(room: int) -> None:
    """Regression: what was left of a frame was lost, and the next one was read as the rest of it."""
    said = set()
    for at in everywhere(room):
        to = Narrow(8, room)
        line = box(to)
        with pytest.raises(KeyboardInterrupt), interrupted(at, ctrl_c, outbox):
            line.put(FIRST)
        line.put(LATER)
        rest(line)
        found = read(to.got)
        assert found in ([(1, b"x" * 20), (2, b"later")], [(2, b"later")])
        said.add(len(found))
    assert said == {1, 2}, "it came before the frame was said, and after"


@anywhere
@pytest.mark.timeout(20)  # else it waits for itself
def test_a_handler_that_says_something_waits_for_nobody_and_is_heard(room: int) -> None:
    for at in everywhere(room):
        to = Narrow(8, room)
        line = box(to)

        def handler(line: Outbox = line) -> None:
            line.put(HANDLERS)

        with interrupted(at, handler, outbox):
            line.put(FIRST)
        rest(line)
        assert sorted(read(to.got)) == [(1, b"x" * 20), (3, b"a handler's")]


@anywhere
def test_a_handler_that_says_something_and_raises_is_heard_with_the_next_frame(room: int) -> None:
    for at in everywhere(room):
        to = Narrow(8, room)
        line = box(to)

        def handler(line: Outbox = line) -> None:
            line.put(HANDLERS)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), interrupted(at, handler, outbox):
            line.put(FIRST)
        line.put(LATER)
        rest(line)
        found = read(to.got)
        assert [one for one in found if one[0] != 1] == [(3, b"a handler's"), (2, b"later")]
        assert found.count((1, b"x" * 20)) <= 1


@anywhere
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # one that was not said yet is closed by the collector
def test_a_descriptor_goes_along_once_and_is_closed_wherever_an_interrupt_comes(room: int) -> None:
    for at in everywhere(room):
        to = Narrow(8, room)
        line = box(to)
        descriptor = os.memfd_create("x")
        inode = os.fstat(descriptor).st_ino
        with pytest.raises(KeyboardInterrupt), interrupted(at, ctrl_c, outbox):
            line.put(FIRST, descriptor)
        line.put(LATER)
        rest(line)
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


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 60), st.booleans()), max_size=8), st.integers(1, 50))
def test_frames_arrive_in_order_through_any_socket(frames: list[tuple[bytes, int, bool]], width: int) -> None:
    to = Narrow(width)
    line = box(to)
    for number, (body, room, flushed) in enumerate(frames):
        to.room = room
        line.put(frame(number, body))
        if flushed:
            line.flush()
            assert len(read(to.got)) == number + 1
    rest(line)
    assert read(to.got) == [(number, body) for number, (body, _, _) in enumerate(frames)]


@pytest.mark.timeout(20)  # else it waits for room
def test_who_says_something_waits_for_no_room_and_who_flushes_waits_until_it_has_left() -> None:
    """Regression: whatever was said to a process that was stopped waited until it went on, whatever deadline it had."""
    ours, theirs = socket.socketpair()
    line, got = Outbox(ours), bytearray()
    large = bytes(4 << 20)
    with ours, theirs:
        line.put(frame(1, large))
        line.put(LATER)
        flushing = threading.Thread(target=line.flush)
        flushing.start()
        line.put(HANDLERS)
        while len(got) < 3 * framing.HEADER.size + len(large) + len(b"later" + b"a handler's"):
            got += theirs.recv(1 << 16)
        flushing.join()
    assert read(bytes(got)) == [(1, large), (2, b"later"), (3, b"a handler's")]


def test_nobody_else_writes_while_one_waits_for_room() -> None:
    to = Narrow(8, room=12)
    line = box(to)
    line.put(FIRST)

    def meanwhile() -> None:
        if len(to.got) == 12:
            to.room = 100  # so whoever tried would succeed
            line.put(LATER)

    to.meanwhile = meanwhile
    line.flush()
    assert read(to.got) == [(1, b"x" * 20), (2, b"later")]


@pytest.mark.timeout(20)  # else it waits for room
def test_who_waits_for_room_is_told_of_the_end_and_what_was_left_is_dropped() -> None:
    ours, theirs = socket.socketpair()
    line = Outbox(ours)
    line.put(frame(1, bytes(4 << 20)))
    descriptor = os.memfd_create("x")
    line.put(LATER, descriptor)
    running = threading.Thread(target=line.run)
    running.start()
    with ours, theirs:
        ours.shutdown(socket.SHUT_RDWR)
        line.close()
        running.join()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_threads_lose_and_tear_nothing() -> None:
    ours, theirs = socket.socketpair()
    line, got = Outbox(ours), bytearray()

    def say(who: int) -> None:
        for n in range(50):
            line.put(frame(who, bytes([n]) * 10_000))
            if not who:
                line.flush()

    def hear() -> None:
        while data := theirs.recv(1 << 16):
            got.extend(data)

    hearing, running = threading.Thread(target=hear), threading.Thread(target=line.run)
    threads = [threading.Thread(target=say, args=(who,)) for who in range(3)]
    with ours, theirs:
        for thread in (hearing, running, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        line.close()
        running.join()
        ours.shutdown(socket.SHUT_WR)
        hearing.join()
    found = read(bytes(got))
    for who in range(3):
        assert [body for number, body in found if number == who] == [bytes([n]) * 10_000 for n in range(50)]
