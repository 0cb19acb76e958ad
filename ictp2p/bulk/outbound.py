"""The writing half of a bulk connection: frames, in clear or sealed, into a transport, or bodies into shared memory.

Large buffers are reused once the transport has let go of them, told from its count of unsent bytes, because first touch
of fresh memory costs more than sealing it. Two are kept: a burst of small frames must not leave hundreds, each to be
replaced by one for a chunk. What is large and keeps its content is not copied (but by
asyncio's own loop, which joins what is written at once; uvloop hands the pieces to the kernel).
"""

from __future__ import annotations

import asyncio
from collections import deque

from ictp2p.bulk.ciphers import Cipher
from ictp2p.bulk.frames import HEADER_BYTES, SEAL_BYTES, Kind, pack_header
from ictp2p.bulk.seal import Seal
from ictp2p.bulk.shared import LEAST, Writer
from ictp2p.bulk.users import Frame

_METERED = frozenset({Kind.PARTIAL, Kind.RESULT, Kind.REPLY})
"""Frames between which the other end measures the link (`pacing.Meter`)."""
_COALESCE_BYTES = 64 * 1024
"""Frames up to this size are joined to one write; larger ones are not copied."""
SMALL = 4 * 1024
"""Bytes up to which a body in one piece is sealed to memory of its own."""
_PIECE = 16 * 1024
"""Bytes: smaller pieces, on average, are copied together before they are sealed."""
_LASTING = 16 * 1024
"""Bytes from which on a buffer is worth being used again."""
_WIDE = 4
"""Times what goes into it, the largest that is taken for it: what is on its way holds no more memory than that."""
_FREE = 2
"""Buffers that are kept for what comes."""

_PAD = -HEADER_BYTES % 16
"""Bytes before a header in a buffer of ours."""


class Outbound:
    """Writes to one transport.

    Args:
        transport: takes the bytes.
        most: bytes beyond the kernel's own buffer that it may hold before it asks us to pause.
    """

    def __init__(self, transport: asyncio.Transport, most: int) -> None:
        self.written = 0
        """Bytes given to the transport so far."""
        self._transport = transport
        self._most = most
        self._seal: Seal | None = None
        self._seal_bodies = True
        self._starved = True
        self.ring: Writer | None = None
        """Where large bodies go, if the other end is on this host."""
        self._in_flight: deque[tuple[int, bytearray]] = deque()
        """Buffers that the transport has, and what will have left once it has let go of each."""
        self._free: list[bytearray] = []
        """Buffers that it has let go of, the warmest last."""
        self._drained: asyncio.Future[None] | None = None
        self.hold(most)

    @property
    def pending(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._transport.get_write_buffer_size()

    @property
    def flushed(self) -> int:
        """Bytes that have left for the kernel so far."""
        return self.written - self._transport.get_write_buffer_size()

    def crowded(self) -> bool:
        """Say whether the other end has yet to read what is in shared memory before more should be sent."""
        return self.ring is not None and self.ring.crowded()

    def secure(self, key: bytes, cipher: Cipher, *, bodies: bool) -> None:
        """Seal with `key` from here on, if not all `bodies`, then those that are asked for."""
        self._seal, self._seal_bodies = Seal(key, cipher), bodies

    def holds_memory(self) -> bool:
        """Say whether the transport still refers to memory of a user. Sealed bodies are copies."""
        return not self._seal_bodies and self.pending > 0

    def hold(self, most: int) -> None:
        """Let the transport hold at most `most` bytes; while somebody waits until it holds none, from then on."""
        self._most = most
        if self._drained is None:
            self._transport.set_write_buffer_limits(high=most, low=most // 4)

    def starve(self) -> None:
        """Note that there was nothing to send: the next chunk's gap says nothing about the link.

        Whatever small is said before that chunk comes changes nothing of this.
        """
        self._starved = True

    def write(self, frame: Frame, *, sealed: bool = False) -> int:
        """Write a frame; give its bytes, without a seal.

        Raises:
            Exception: what `Frame.make` does, or that there is no memory for it: as if it had never been. What fails
                while it is sealed has used a nonce, so the other end refuses the next frame.
        """
        views = frame.views
        size = frame.size if frame.make else len(views[0]) if len(views) == 1 else sum(map(len, views))
        # A pause while the transport still had bytes to send was none for the link.
        starved = self._starved and self.pending == 0
        room = self.ring.room(size) if self.ring is not None and size >= LEAST else None
        header = pack_header(frame.kind, frame.tag, frame.first, frame.second, size, starved, room is not None)
        if room is not None:
            self._write_shared(header, frame, room)
        elif sealed or self._seal_bodies:
            self._write_sealed(header, frame, size)
        else:
            self._write_clear(header, frame, size)
        if frame.kind in _METERED:
            self._starved = False
        return HEADER_BYTES + size

    def write_small(self, kind: Kind, tag: bytes, first: int, second: int, body: bytes) -> int:
        """Write a frame of at most `SMALL` bytes, in as few calls as it takes; give its bytes, without a seal."""
        size = len(body)
        header = pack_header(kind, tag, first, second, size, starved=False)
        if self._seal_bodies:
            assert self._seal is not None  # nothing that is to be sealed leaves in clear
            data = self._seal.sealed(header, body)
        else:
            data = header + body
        self._transport.write(data)
        self.written += len(data)
        return HEADER_BYTES + size

    def put(self, data: bytes | memoryview) -> None:
        """Write bytes as they are."""
        self._transport.write(data)
        self.written += len(data)

    async def drained(self) -> None:
        """Wait until the kernel has taken everything written so far, or `release`."""
        if not self.pending:
            return
        self._transport.set_write_buffer_limits(high=0)
        self._drained = self._drained or asyncio.get_running_loop().create_future()
        await asyncio.shield(self._drained)

    def resumed(self) -> None:
        """The transport has room: if somebody waits for that, it has none left to send."""
        if self._drained is not None:
            self._let_go()
            self.hold(self._most)

    def release(self) -> None:
        """Forget what is under way: the connection has ended."""
        self._in_flight.clear()
        self._free.clear()
        self.ring = None
        self._let_go()

    def _let_go(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def _write_shared(self, header: bytes, frame: Frame, room: memoryview) -> None:
        """Put the body into shared memory, and write what tells of it."""
        assert self.ring is not None
        frame.put(room)
        self._write_header(header)
        self.ring.wrote(len(room))  # last: what nobody is told of takes no place

    def _write_header(self, header: bytes) -> None:
        if not self._seal_bodies:
            self.put(header)
            return
        assert self._seal is not None
        self.put(self._seal.sealed(header, b""))

    def _write_clear(self, header: bytes, frame: Frame, size: int) -> None:
        if frame.make is None and size <= _COALESCE_BYTES:
            self.put(b"".join((header, *frame.views)))
        elif frame.stable:
            self._transport.writelines((header, *frame.views))
            self.written += HEADER_BYTES + size
        else:
            buffer, view = self._laid_out(header, size)
            frame.put(view[HEADER_BYTES:])
            self._put_kept(buffer, view)

    def _write_sealed(self, header: bytes, frame: Frame, size: int) -> None:
        assert self._seal is not None
        views = frame.views
        if size <= SMALL and len(views) == 1:
            self.put(self._seal.sealed(header, views[0]))
            return
        buffer, view = self._laid_out(header, size + SEAL_BYTES)
        into = view[HEADER_BYTES:]
        if len(views) > 1 and size >= len(views) * _PIECE:
            self._seal.seal_pieces(header, views, into)
        elif len(views) == 1:
            self._seal.seal(header, views[0], into)
        else:
            frame.put(into[:size])
            self._seal.seal(header, into[:size], into)
        self._put_kept(buffer, view)

    def _laid_out(self, header: bytes, size: int) -> tuple[bytearray, memoryview]:
        """Give a buffer, and of it a header with room for `size` bytes behind, aligned for sums to be made there."""
        total = _PAD + HEADER_BYTES + size
        buffer = self._reusable(total) if total >= _LASTING else bytearray(total)
        view = memoryview(buffer)[_PAD:total]
        view[:HEADER_BYTES] = header
        return buffer, view

    def _put_kept(self, buffer: bytearray, view: memoryview) -> None:
        """Write what stands in a buffer of our own, and keep that from being used again before it has left."""
        self.put(view)
        if len(buffer) >= _LASTING:
            self._in_flight.append((self.written, buffer))

    def _reusable(self, size: int) -> bytearray:
        """Take the warmest buffer of about this size that the transport has let go of, or make one."""
        flushed = self.flushed
        while self._in_flight and self._in_flight[0][0] <= flushed:
            self._free.append(self._in_flight.popleft()[1])
        del self._free[:-_FREE]
        for at in reversed(range(len(self._free))):
            if size <= len(self._free[at]) <= _WIDE * size:
                return self._free.pop(at)
        return bytearray(size)
