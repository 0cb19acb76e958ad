"""The first 32 bytes of every connection, in the clear, in both directions.

    "ICTP" | oldest wire version u8 | newest u8 | kind u8 | verdict u8 | mesh fingerprint 8 | zeros 16

One port serves everything, so a connection first says what it is. The dialer writes its preamble; the acceptor
judges it, answers with its own, and its answer carries the verdict; the dialer judges the answer in turn. So a
port scanner, a peer from next year's release and a peer with last month's token are told apart *before* TLS,
whose own failures all look alike, and both sides can name the reason in a typed error.

The size is fixed, for all wire versions, which could not tell each other apart otherwise; the zeros are room for what
a later one has to say, and not looked at. And the dialer speaks next, once it has read the answer. So neither side can
have read a byte too many, and TLS starts on the same socket, on any event loop.

The preamble is not authenticated and grants nothing. Changing its bits on the way makes a connection fail, which
whoever can change bits can have more cheaply; a peer understands one wire version, hence nothing to downgrade to.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from ictp2p.errors import HandshakeFailed, IctError, RemoteProtocolError, TurnedAway, VersionMismatch
from ictp2p.wire import WIRE_VERSION

OLDEST_VERSION = WIRE_VERSION
"""The oldest wire version that this code still understands."""

_MAGIC = b"ICTP"
_LAYOUT = struct.Struct("!4sBBBB8s16x")
PREAMBLE_SIZE = _LAYOUT.size
"""Bytes of a preamble: 32."""


class Kind(enum.IntEnum):
    """What a connection is for. Append only."""

    CONTROL = 1
    """Messages, inside TLS."""
    BULK = 2
    """Tensor bytes, sealed by keys that were agreed over a control connection; whose they are, and whether it was asked
    to dial, bulk's own hello says."""


class Verdict(enum.IntEnum):
    """What the acceptor says about the dialer's preamble. Append only."""

    WELCOME = 0
    OTHER_VERSION = 1
    OTHER_MESH = 2
    UNKNOWN_KIND = 3
    BUSY = 4


@dataclass(frozen=True, slots=True)
class Preamble:
    """One side's opening words."""

    fingerprint: bytes
    """Names the mesh, 8 bytes (see `credential.Mesh`)."""
    kind: int = Kind.CONTROL
    """A `Kind`, or a number from a later release."""
    verdict: int = Verdict.WELCOME
    """A `Verdict`; a dialer always writes WELCOME."""
    oldest: int = OLDEST_VERSION
    """The oldest wire version that the sender understands."""
    newest: int = WIRE_VERSION
    """The newest."""

    def encode(self) -> bytes:
        """Return the 32 bytes."""
        return _LAYOUT.pack(_MAGIC, self.oldest, self.newest, self.kind, self.verdict, self.fingerprint)

    @classmethod
    def decode(cls, data: bytes | bytearray) -> Preamble:
        """Read 32 bytes. A number that this release does not know is kept, for `judge` to refuse by name.

        Raises:
            RemoteProtocolError: they are not a preamble.
        """
        if len(data) != PREAMBLE_SIZE or not is_preamble(data):
            raise RemoteProtocolError(f"expected an ictp2p preamble, got {bytes(data[:PREAMBLE_SIZE])!r}")
        _, oldest, newest, kind, verdict, fingerprint = _LAYOUT.unpack(data)
        return cls(fingerprint, kind, verdict, oldest, newest)


def is_preamble(start: bytes | bytearray) -> bool:
    """Say whether `start`, maybe not all of it, can be the beginning of a preamble."""
    return bytes(start[: len(_MAGIC)]) == _MAGIC[: len(start)]


def judge(mine: Preamble, theirs: Preamble) -> Verdict:
    """Say what is wrong, if anything, with a dialer's preamble."""
    if min(mine.newest, theirs.newest) < max(mine.oldest, theirs.oldest):
        return Verdict.OTHER_VERSION
    if mine.fingerprint != theirs.fingerprint:
        return Verdict.OTHER_MESH
    if theirs.kind not in Kind.__members__.values():
        return Verdict.UNKNOWN_KIND
    return Verdict.WELCOME


def check(mine: Preamble, theirs: Preamble, verdict: int) -> None:
    """Raise the error that stands for a verdict, ours on a dialer or theirs on us; the words fit both.

    Raises:
        VersionMismatch: no wire version is understood by both sides.
        TurnedAway: the two are of different meshes.
        HandshakeFailed: the acceptor will not take the connection.
    """
    if verdict == Verdict.WELCOME and theirs.fingerprint != mine.fingerprint:
        verdict = Verdict.OTHER_MESH  # an acceptor that welcomes strangers is not one of ours
    if verdict != Verdict.WELCOME:
        raise _error(mine, theirs, verdict)


def _error(mine: Preamble, theirs: Preamble, verdict: int) -> IctError:
    match verdict:
        case Verdict.OTHER_VERSION:
            return VersionMismatch(
                f"the other side speaks wire versions {theirs.oldest} to {theirs.newest}, "
                f"this one {mine.oldest} to {mine.newest}"
            )
        case Verdict.OTHER_MESH:
            return TurnedAway(
                f"the other side is of mesh {theirs.fingerprint.hex()}, this one of {mine.fingerprint.hex()}: "
                "their join tokens differ"
            )
        case Verdict.UNKNOWN_KIND:
            return HandshakeFailed(f"a connection of kind {theirs.kind} is not known here")
        case Verdict.BUSY:
            return HandshakeFailed("too many connections are being set up at once there")
        case _:
            return HandshakeFailed(f"the other side refused the connection for reason {verdict}")
