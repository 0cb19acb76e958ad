"""What a training program has to say to its peer's process: frames, each sent whole, once and in order.

Who has something to say writes what there is room for, and never waits for more: a process that is stopped, or whose
disk hangs, makes none, and in the middle of a write nobody hears that the deadline of a call is over. What is left is
written by a thread that is there for nothing else (`Outbox.run`), and what is said meanwhile goes behind it. That
thread could write everything, but in a program that keeps the interpreter lock to itself each message would wait for
the lock once more.

So an interrupt may raise in the middle of writing: Python runs signal handlers of the main thread between any two
bytecodes, also between a system call and the note of what it has done. Half a frame would then be read as the beginning
of the next. So how much of a frame was sent is noted by C code that no handler can come into (`list.extend` over
`map`), a frame stays the first one until it was sent whole, and whoever writes next goes on with the rest.

A signal handler may have something to say itself, in the middle of another message: it leaves its frame to the writer
whom it interrupted.
"""

from __future__ import annotations

import array
import io
import queue
import socket
import threading
from collections import deque


class Outbox:
    """Frames for a connected, blocking stream socket. A thread has to `run` it.

    Args:
        to: the socket.
    """

    def __init__(self, to: socket.socket) -> None:
        self._to = to
        self._frames: deque[_Frame] = deque()
        self._turn = threading.Lock()
        self._writers: set[int] = set()
        """Threads that write or are about to; one that was interrupted may have stayed in it."""
        self._patience = threading.Lock()
        """Held by the thread that waits for room."""
        self._taken = False
        """Whether that thread writes: then nobody else does."""
        self._full: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """That something is left to write, or that nothing more will be; said by handlers too, wherever they come."""

    def put(self, frame: bytes, descriptor: int | None = None) -> None:
        """Send a frame, after those before it, and wait for no room; a descriptor that goes along is closed here.

        What cannot be sent any more is dropped: whoever reads will say why. If an interrupt raises out of this, the
        frame was sent, or will be by whoever is next, or its sender has not got as far as to say it.
        """
        self._frames.append(_Frame(frame, descriptor))
        self._send()

    def flush(self) -> None:
        """Have written what was said, and wait for room: as long as the process stands still, and lives.

        Who says much does so here before more is said, else all of it would be kept for a process that is stopped. Not
        for the main thread: what a signal's handler raises would leave the line to nobody.
        """
        with self._patience:
            with self._turn:
                self._taken = True
            try:
                self._write(0)
            finally:
                self._taken = False
            self._send()  # what was left to this thread at the last moment

    def run(self) -> None:
        """Write what there was no room for, in a thread of its own; until `close`."""
        while self._full.get():
            self.flush()

    def close(self) -> None:
        """Have `run` end; a write that waits for room ends with the connection."""
        self._full.put(False)

    def _send(self) -> None:
        thread = threading.get_ident()
        while self._frames and not self._taken:
            if self._turn.locked() and thread in self._writers:
                return  # in a handler, on top of who writes; or another thread does, which looks again when it is done
            self._writers.add(thread)
            with self._turn:
                full = not self._taken and not self._write(socket.MSG_DONTWAIT)
            self._writers.discard(thread)
            if full:
                self._full.put(True)
                return

    def _write(self, flags: int) -> bool:
        """Write all there is, or, if these flags are not to wait, what there is room for; whether it was all."""
        while self._frames:
            first = self._frames[0]
            try:
                while first.left:
                    first.send(self._to, flags)
            except BlockingIOError:
                return False
            except OSError:
                first.drop()
            first.close()
            self._frames.popleft()
        return True


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

    def send(self, to: socket.socket, flags: int) -> None:
        """Send some of it; the descriptor goes along with the first byte."""
        rest = self._data[sum(self._sent) :]
        if self._descriptor is None or self._sent:
            self._sent.extend(map(to.send, (rest,), (flags,)))
        else:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._descriptor.fileno()]))
            self._sent.extend(map(to.sendmsg, ([rest],), ([rights],), (flags,)))

    def drop(self) -> None:
        """Nobody reads it any more."""
        self._data = memoryview(b"")

    def close(self) -> None:
        """Close the descriptor, if one went along."""
        if self._descriptor is not None:
            self._descriptor.close()
