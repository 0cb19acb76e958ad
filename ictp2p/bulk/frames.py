"""What stands on a bulk connection: one hello in each direction, then frames of a fixed header and a body.

A header is checked completely, and its length against `MAX_BODY`, before anything is allocated for the body. It
travels in clear and is the associated data of the sealed body (RFC 5116), so that changing a bit of it is noticed.

The hello has a fixed size as well, so that a relay can read exactly one, see whom it is for, and join two
connections without looking at another byte: everything behind it is sealed between the two ends.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec

from ictp2p.bulk.ciphers import UNKNOWN, Costs
from ictp2p.errors import RemoteProtocolError, VersionMismatch
from ictp2p.types import PeerId
from ictp2p.wire import WIRE_VERSION

Buffer: TypeAlias = bytes | bytearray | memoryview
MAX_BODY = 4 * 1024 * 1024
"""Bytes; the longest chunk that the planner makes. Bounds what a peer can make us allocate."""
SEAL_BYTES = 16
NO_TAG = bytes(16)


class Kind(enum.IntEnum):
    """What a frame says. Append only."""

    CONFIRM = 1
    """The first frame each way: whoever sealed it holds the keys of the two hellos."""
    ALIVE = 2
    """Nothing to say at present, but here."""
    BEGIN = 3
    """The sender takes part in the collective of this tag: it may be sent to. It has dropped the `first` chunks that
    came before; `second` is a checksum of what it calls. Its body says nothing; what counts is its length
    (`resting`)."""
    PARTIAL = 4
    RESULT = 5
    ABORT = 6
    """The sender has given up the collective of this tag; the body names suspects and a reason."""
    MEASURED = 7
    """What the sender received under this tag: bytes, seconds, whether the other side lacked data."""
    REQUEST = 8
    REPLY = 9
    END = 10
    """A reply is complete (`first` 0), or failed (1) with a reason in the body."""
    CANCEL = 11
    PROBE = 12
    """Bytes without meaning; `second` counts those still to come, this body included; `first` is 1 after a stop."""
    ASK = 13
    """The sender wants to probe the receiver of this; see `turns`."""
    GRANT = 14
    """It may."""
    OFFER = 15
    """The sender has memory for bodies, if the receiver is on the same host; the body says where (`shared`)."""
    OPENED = 16
    """The answer: the receiver has opened it (`first` 1), or cannot."""
    FREED = 17
    """The receiver of bodies in shared memory has used all up to position `second`."""
    WHOLE = 18
    """`BEGIN`, and behind it a `PARTIAL` that is all that the sender has to send in the collective of this tag."""
    RECEIPT = 19
    """Who asked has all of the reply; see `streams.RECEIPT`."""


_KINDS = {int(kind): kind for kind in Kind}
_HEADER = struct.Struct("!2sBBBxHQI16s")
_MAGIC = b"Bk"
HEADER_BYTES = _HEADER.size


class Header(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of a frame."""

    kind: Kind
    tag: bytes = NO_TAG
    first: int = 0
    """Share number, status, or 0."""
    second: int = 0
    """Chunk number, byte offset, or count."""
    length: int = 0
    """Bytes of the body before sealing."""
    starved: bool = False
    """The sender had nothing to send just before: the gap says nothing about the link (BBR's app-limited)."""
    shared: bool = False
    """The body is in shared memory, and not behind the header."""

    def part(self) -> Header:
        """Give the header of the chunk that a `WHOLE` brings along."""
        return Header(Kind.PARTIAL, self.tag, length=self.length)

    def pack(self) -> bytes:
        """Write the header."""
        return pack_header(self.kind, self.tag, self.first, self.second, self.length, self.starved, self.shared)


def pack_header(
    kind: Kind, tag: bytes, first: int, second: int, length: int, starved: bool, shared: bool = False
) -> bytes:
    """Write a header's fields."""
    return _HEADER.pack(_MAGIC, WIRE_VERSION, kind, starved | shared << 1, first, second, length, tag)


def read_header(data: Buffer) -> Header:
    """Read and check a header.

    Raises:
        VersionMismatch: another version of the bulk wire.
        RemoteProtocolError: not a header, an unknown kind, or a body that is too long.
    """
    magic, version, kind, flags, first, second, length, tag = _HEADER.unpack(data)
    if magic == _MAGIC and version == WIRE_VERSION and kind in _KINDS and length <= MAX_BODY:
        return Header(_KINDS[kind], tag, first, second, length, bool(flags & 1), bool(flags & 2))
    if magic != _MAGIC:
        raise RemoteProtocolError(f"bulk frame begins with {magic!r}")
    if version != WIRE_VERSION:
        raise VersionMismatch(f"bulk frame of version {version}, this is version {WIRE_VERSION}")
    if kind not in _KINDS:
        raise RemoteProtocolError(f"bulk frame of unknown kind {kind}")
    raise RemoteProtocolError(f"bulk frame of {length} bytes exceeds {MAX_BODY}")


class Purpose(enum.IntEnum):
    """Why a bulk connection was opened, or how it was answered. Append only."""

    DIRECT = 1
    TICKET = 2
    """The dialer was asked to dial, over the control plane; the ticket says by which call."""
    RELAY = 3
    """The hello is for somebody behind the one who reads it; the ticket proves that a member made it (`membership`)."""
    ANSWER = 4
    REFUSAL = 5
    """`nonce` holds up to 32 bytes of reason."""


_START = struct.Struct("!4sB")
HELLO_START = _START.size
"""Bytes of a hello, in whatever version, that say that it is one, and of which."""
_PURPOSES = {int(purpose): purpose for purpose in Purpose}
_HELLO = struct.Struct("!4sBBBB16s16s32s16sHH")
_HELLO_MAGIC = b"ICTB"
HELLO_BYTES = _HELLO.size
MAX_HOPS = 8


@dataclass(frozen=True, slots=True)
class Hello:
    """The first thing each end says: who, to whom, why, and a fresh nonce."""

    purpose: Purpose
    source: PeerId
    target: PeerId
    nonce: bytes
    ticket: bytes = NO_TAG
    sealed: bool = True
    hops: int = 0
    """How many relays may still pass this on."""
    costs: Costs = UNKNOWN
    """What sealing costs whoever says this."""
    beside: bool = False
    """Whether who says this has the connection beside a first one, for itself: the other end begins nothing on it."""

    def pack(self) -> bytes:
        """Write the hello."""
        source, target = bytes.fromhex(self.source), bytes.fromhex(self.target)
        fixed = (_HELLO_MAGIC, WIRE_VERSION, self.purpose, self.sealed | self.beside << 1, self.hops)
        return _HELLO.pack(*fixed, source, target, self.nonce, self.ticket, *self.costs)

    def relayed(self) -> Hello:
        """Give the hello as a relay passes it on."""
        return replace(self, purpose=Purpose.RELAY, hops=self.hops - 1)

    @classmethod
    def refusal(cls, answered: Hello, reason: str) -> Hello:
        """Make the answer that turns `answered` away."""
        nonce = reason.encode("ascii", "replace")[:32].ljust(32)
        return cls(Purpose.REFUSAL, answered.target, answered.source, nonce, answered.ticket)


def check_hello(start: Buffer) -> None:
    """See from the first bytes whether a hello is one that we can read: of another version it may be shorter.

    Raises:
        VersionMismatch: another version of the bulk wire.
        RemoteProtocolError: these bytes do not begin a hello.
    """
    magic, version = _START.unpack(start)
    if magic != _HELLO_MAGIC:
        raise RemoteProtocolError(f"bulk connection begins with {magic!r}")
    if version != WIRE_VERSION:
        raise VersionMismatch(f"bulk hello of version {version}, this is version {WIRE_VERSION}")


def read_hello(data: Buffer) -> Hello:
    """Read and check a hello.

    Raises:
        VersionMismatch: another version of the bulk wire.
        RemoteProtocolError: these bytes are not a hello.
    """
    check_hello(data[:HELLO_START])
    _, _, purpose, flags, hops, source, target, nonce, ticket, *costs = _HELLO.unpack(data)
    if purpose not in _PURPOSES or flags > 3 or hops > MAX_HOPS:
        raise RemoteProtocolError(f"bulk hello with purpose {purpose}, flags {flags}, {hops} hops")
    names, sealed, beside = (PeerId(source.hex()), PeerId(target.hex())), bool(flags & 1), bool(flags & 2)
    return Hello(_PURPOSES[purpose], *names, nonce, ticket, sealed, hops, (costs[0], costs[1]), beside)


def transcript(dialer: Hello, accepter: Hello) -> bytes:
    """Hash both hellos to the context of the connection's keys; what a relay may change is left out."""
    fixed = replace(dialer, purpose=Purpose.DIRECT, hops=0)
    return hashlib.blake2b(fixed.pack() + accepter.pack(), digest_size=32, person=b"ictp2p-bulk").digest()


_MEASURED = struct.Struct("!Qd?")
_MOST_RATE = 1e24
"""Bytes per second, more than any clock can tell: with an infinite one our card would be taken for garbage."""


def pack_measured(size: int, seconds: float, starved: bool) -> bytes:
    """Write the body of a `MEASURED` frame."""
    return _MEASURED.pack(size, seconds, starved)


def read_measured(body: memoryview) -> tuple[int, float, bool]:
    """Read the body of a `MEASURED` frame.

    Raises:
        RemoteProtocolError: wrong length, not a duration, or one in which so many bytes cannot have come.
    """
    if len(body) != _MEASURED.size:
        raise RemoteProtocolError(f"measurement of {len(body)} bytes, expected {_MEASURED.size}")
    size, seconds, starved = _MEASURED.unpack(body)
    if not (0 < seconds < 1e9 and size / seconds < _MOST_RATE):
        raise RemoteProtocolError(f"measurement of {size} bytes over {seconds} s")
    return size, seconds, starved
