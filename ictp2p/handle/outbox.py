"""What a training program has to say to its peer's process: frames, each sent whole, once and in order.

Writing is done by whoever has something to say, so an interrupt may raise in the middle of it: Python runs signal
handlers of the main thread between any two bytecodes, also between a system call and the note of what it has done. Half
a frame would then be read as the beginning of the next. So how much of a frame was sent is noted by C code that no
handler can come into (`list.extend` over `map`), a frame stays the first one until it was sent whole, and whoever
writes next goes on with the rest.

A signal handler may have something to say itself, in the middle of another message: it leaves its frame to the writer
whom it interrupted.
"""

from __future__ import annotations

import array
import io
import socket
import threading
from collections import deque


class Outbox:
    """Frames for a connected, blocking stream socket.

    Args:
        to: the socket.
    """

    def __init__(self, to: socket.socket) -> None:
        self._to = to
        self._frames: deque[_Frame] = deque()
        self._turn = threading.Lock()
        self._writers: set[int] = set()
        """Threads that write or are about to; one that was interrupted may have stayed in it."""

    def put(self, frame: bytes, descriptor: int | None = None) -> None:
        """Send a frame, and what was left before it; a descriptor that goes along is closed here.

        What cannot be sent any more is dropped: whoever reads will say why. If an interrupt raises out of this, the
        frame was sent, or will be by whoever is next, or its sender has not got as far as to say it.
        """
        self._frames.append(_Frame(frame, descriptor))
        thread = threading.get_ident()
        while self._frames:
            if self._turn.locked() and thread in self._writers:
                return  # in a handler, on top of who writes; or another thread does, which looks again when it is done
            self._writers.add(thread)
            with self._turn:
                self._write()
            self._writers.discard(thread)

    def _write(self) -> None:
        while self._frames:
            first = self._frames[0]
            try:
                while first.left:
                    first.send(self._to)
            except OSError:
                first.drop()
            first.close()
            self._frames.popleft()


class _Frame:
    """One frame, and how much of it was sent."""

    def __init__(self, data: bytes, descriptor: int | None) -> None:
        self._data = memoryview(data)
        self._sent: list[int] = []
        self._descriptor = None if descriptor is None else io.FileIO(descriptor)  # it can be closed twice

    @property
    def left(self) -> int:
        """Bytes that were not sent yet."""
        return max(0, len(self._data) - sum(self._sent))

    def send(self, to: socket.socket) -> None:
        """Send some of it; the descriptor goes along with the first byte."""
        rest = self._data[sum(self._sent) :]
        if self._descriptor is None or self._sent:
            self._sent.extend(map(to.send, (rest,)))
        else:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._descriptor.fileno()]))
            self._sent.extend(map(to.sendmsg, ([rest],), ([rights],)))

    def drop(self) -> None:
        """Nobody reads it any more."""
        self._data = memoryview(b"")

    def close(self) -> None:
        """Close the descriptor, if one went along."""
        if self._descriptor is not None:
            self._descriptor.close()
