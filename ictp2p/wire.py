"""Bytes to frames and frames to messages, without a socket in sight.

A control connection carries frames: a fixed eight-byte header, then a body.

    magic u16 | wire version u8 | kind u8 | body length u32        (network byte order)

The header says everything that is needed to refuse a frame, and it is judged before one byte of the body is
kept: a peer that announces four gigabytes is refused at its eighth byte, not at its four-billionth.
(memberlist's security fixes of 2026, #357 to #369, were all lengths checked after allocation.) The magic is
repeated on every frame, so that a stream which lost its place is noticed at the next frame, not after a
wrong length has swallowed a megabyte of good ones.

Bodies are MessagePack arrays whose first element names the message (see `machine.Message`). Decoding is
typed: what comes out of `Codec.decode` has the declared shape, and everything else is the other side's error.
Ranges (a negative round, an infinite delay) are for the machine that knows what the number means.
"""

from __future__ import annotations

import enum
import functools
import operator
import struct
from typing import NamedTuple

import msgspec

from ictp2p.errors import LocalProtocolError, RemoteProtocolError, VersionMismatch
from ictp2p.machine import Message

WIRE_VERSION = 21
"""The version of the wire that this code writes, on control and data connections alike; see `preamble` for how two
peers settle on one. There is no other: who understands of two kinds of connections only one would be let in, and no
round that it takes part in would come to its end."""

MAX_CONTROL_BODY = 1 << 20
"""Largest body of a control frame, bytes. A mesh of 64 clusters gossips 64 KiB and plans in 256 KiB; whoever
needs more is using the wrong connection, because a heartbeat waits behind every control frame."""

_MAGIC = 0x1C7B
_HEADER = struct.Struct("!HBBI")
HEADER_SIZE = _HEADER.size
"""Bytes before the body of a frame."""


MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not the expected value: also for text that is not UTF-8, and for a newer
peer's surplus fields that are nested deeper than the interpreter recurses."""


class FrameKind(enum.IntEnum):
    """What a frame's body is. Append only."""

    HELLO = 0
    """The first frame on a connection, once in each direction: the sender's peer id, 16 bytes, and the key-agreement
    key of its process, 32."""
    MESSAGE = 1
    """An encoded message of whoever owns the connection."""


_KINDS = {int(kind): kind for kind in FrameKind}


class Frame(NamedTuple):
    """One whole frame, as it left the other side."""

    kind: FrameKind
    body: bytes


def frame(kind: FrameKind, body: bytes) -> bytes:
    """Put a header before `body`.

    Raises:
        LocalProtocolError: the body is longer than any receiver would take.
    """
    if len(body) > MAX_CONTROL_BODY:
        raise LocalProtocolError(f"a control body of {len(body)} bytes is over the limit of {MAX_CONTROL_BODY}")
    return _HEADER.pack(_MAGIC, WIRE_VERSION, kind, len(body)) + body


class FrameReader:
    """Cuts a stream into frames. Keeps at most one incomplete frame; after an error it stays broken."""

    def __init__(self, limit: int = MAX_CONTROL_BODY) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._error: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes of the stream, in pieces of any size, and return the frames they complete.

        Raises:
            RemoteProtocolError: what stands where a header should is not one, or announces too long a body.
            VersionMismatch: the frame is of another version of the wire.
        """
        if self._error is not None:
            raise self._error
        if self._buffer:
            self._buffer += data
        source = self._buffer or data  # most reads hold whole frames: those are cut from what was read
        frames: list[Frame] = []
        start = 0
        try:
            while len(source) - start >= HEADER_SIZE:
                kind, length = self._header(source, start)
                body_at = start + HEADER_SIZE
                if len(source) - body_at < length:
                    break
                start = body_at + length
                frames.append(Frame(kind, bytes(source[body_at:start])))
        except RemoteProtocolError as error:
            self._error = error
            self._buffer.clear()
            raise
        if self._buffer:
            del self._buffer[:start]
        elif start < len(data):
            self._buffer += memoryview(data)[start:]
        return frames

    def _header(self, source: bytes | bytearray, start: int) -> tuple[FrameKind, int]:
        magic, version, kind, length = _HEADER.unpack_from(source, start)
        if magic != _MAGIC:
            raise RemoteProtocolError(f"expected a frame, got {bytes(source[start : start + HEADER_SIZE])!r}")
        if version != WIRE_VERSION:
            raise VersionMismatch(f"frame of wire version {version}, expected {WIRE_VERSION}")
        if length > self._limit:
            raise RemoteProtocolError(f"frame of {length} bytes is over the limit of {self._limit}")
        known = _KINDS.get(kind)
        if known is None:
            raise RemoteProtocolError(f"frame of unknown kind {kind}")
        return known, length


class Codec:
    """Encodes and decodes the messages of one room: a closed set of `Message` types with distinct tags."""

    def __init__(self, *types: type[Message]) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        union = functools.reduce(operator.or_, types)
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(union)

    def encode(self, message: Message) -> bytes:
        """Return the body that stands for `message`.

        Raises:
            LocalProtocolError: a field holds a value that the wire cannot carry.
        """
        try:
            return self._encoder.encode(message)
        except (msgspec.MsgspecError, OverflowError, TypeError, ValueError, RecursionError) as error:
            raise LocalProtocolError(f"cannot encode {type(message).__name__}: {error}") from error

    def decode(self, body: bytes) -> Message:
        """Return the message that `body` stands for.

        Raises:
            RemoteProtocolError: it is not MessagePack, not one of ours, or a field has the wrong type.
        """
        try:
            return self._decoder.decode(body)
        except MALFORMED as error:
            # msgspec lets two others out. Text that is not UTF-8 is a plain UnicodeDecodeError; and fields that a
            # newer peer added are skipped by recursion, whose depth the sender chooses.
            raise RemoteProtocolError(f"cannot decode a message of {len(body)} bytes: {error}") from error
