"""The peer's end of the socket to its training program: neither side of it ever blocks the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from ictp2p.errors import Exhausted, LocalProtocolError
from ictp2p.handle.framing import Frames

_READ = 1 << 18
_FDS = 16
"""Most descriptors that come with one read."""


class End:
    """A socket on an event loop.

    Args:
        loop: the loop.
        end: connected.
        heard: given number and body of each frame.
        ended: called when the other side has hung up, or says what cannot be.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end: socket.socket,
        heard: Callable[[int, bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop, self._end = loop, end
        self._heard, self._ended = heard, ended
        self._frames = Frames()
        self._out: deque[memoryview] = deque()
        self._descriptors: deque[int] = deque()
        """What has come along with frames and was not taken yet, in order."""
        self._lost = False
        """Whether the kernel had no room for one."""
        self.backlog = 0
        """Bytes that wait for the other side."""
        end.setblocking(False)
        loop.add_reader(end.fileno(), self._readable)

    def send(self, frame: bytes) -> None:
        """Send a frame, now or when the other side listens again."""
        left = memoryview(frame)
        if not self._out:
            left = left[self._sent(left) :]
            if left:
                self._loop.add_writer(self._end.fileno(), self._writable)
        if left:
            self._out.append(left)
            self.backlog += len(left)

    def descriptor(self) -> int:
        """What came along with the frame that is handled.

        Raises:
            Exhausted: this process may open no more; which one was lost is not known, so none is given any more.
        """
        if self._lost:
            raise Exhausted("the peer's process may open no more files, and memory that is shared with it is one")
        return self._descriptors.popleft()

    def _readable(self) -> None:
        try:
            data, descriptors, flags, _ = socket.recv_fds(self._end, _READ, _FDS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors, flags = b"", [], 0
        self._descriptors.extend(descriptors)
        self._lost |= bool(flags & socket.MSG_CTRUNC)
        try:
            for number, body in self._frames.take(data):
                self._heard(number, body)
        except LocalProtocolError:
            data = b""
            raise
        finally:
            if not data:
                self._loop.remove_reader(self._end.fileno())
                self._ended()

    def _writable(self) -> None:
        while self._out:
            sent = self._sent(self._out[0])
            self.backlog -= sent
            if sent < len(self._out[0]):
                self._out[0] = self._out[0][sent:]
                return
            self._out.popleft()
        self._loop.remove_writer(self._end.fileno())

    def _sent(self, data: memoryview) -> int:
        try:
            return self._end.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # nobody reads it any more; the end of the socket says so next
