"""How the followers of a cluster get an outer round: streamed by their leader while it arrives from the mesh.

The leader alone takes part in the round. Whatever range of the average has arrived it broadcasts at once, behind a
small header, so that the last follower is complete moments after the leader instead of a whole model later. Nothing of
it counts before the verdict: a follower computes the next state beside the current one, and applies it on COMMIT.

    leader      RESTART 1 ..   DATA ..   DATA ..   RESTART 2 ..   DATA ..   WAIT   COMMIT 7

RESTART also says who takes part, because the next state may depend on what each had to say (`Participant.note`). WAIT
says that the leader is alive while the mesh takes its time. The leader never lets a broken group end its round: it
carries on for the mesh, and the followers are healed in the next group.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import torch
from torch import Tensor

from ictp2p import errors
from ictp2p.errors import IctError, LocalGroupError, PeerClosed, RoundError
from ictp2p.sync.mesh import Group
from ictp2p.sync.values import MAX_NOTE, MAX_PARTICIPANTS, Participant
from ictp2p.wire import MALFORMED

_HEADER = struct.Struct("<BB6xQQ32s136s")
_TEXT = 136
_MOST_PARTS = MAX_PARTICIPANTS * 2 * MAX_NOTE
_PIECE = 1024 * 1024
"""Most elements per broadcast."""


class Kind(enum.IntEnum):
    """What a header says."""

    WAIT = 1
    """Nothing yet."""
    RESTART = 2
    """An attempt begins: forget what came before."""
    DATA = 3
    """A range of the average follows."""
    COMMIT = 4
    """The mesh committed what was computed from the data: apply it."""
    ADOPT = 5
    """The mesh is at another state: it follows."""
    ABANDON = 6
    """No round this time: keep what you have."""
    STOP = 7
    """The leader gives up with an error."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a round ended for the cluster."""

    kind: Kind
    version: int = 0
    digest: bytes = b""
    mine: int = 0
    """With ADOPT: which versions up to this one hold contributions of the cluster that it has not heard of; see
    `Mesh.contributed`."""
    reason: str = ""


def kind_of(name: str) -> type[IctError]:
    """The type of an error that a leader told its followers by name: they raise the same, for who tells errors apart.

    Two never pass, nor what no error is called: that a group broke, or a peer was closed, each worker finds out for
    itself, and would be told wrongly of another one's.
    """
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, IctError)) or issubclass(kind, LocalGroupError | PeerClosed):
        return RoundError
    return kind


class Publisher:
    """The leader's end. Once the group breaks it falls silent; `broken` then says why, in words.

    The error itself knows the frames that it went through, and so this and the average: a cycle.
    """

    def __init__(self, group: Group, average: Tensor, others: Sequence[Callable[[], None]] = ()) -> None:
        """Publish ranges of `average`, a flat CPU tensor, to `group`; `others` are told, too, that the leader waits."""
        self.broken = ""
        self._group, self._average, self._others = group, average, others

    def wait(self) -> None:
        """Say that the leader is alive."""
        self._send(Kind.WAIT)
        for tell in self._others:
            tell()

    def restart(self, attempt: int, parts: Sequence[Participant]) -> None:
        """Say that an attempt begins, and who takes part."""
        encoded = msgspec.msgpack.encode(tuple(parts))
        self._send(Kind.RESTART, attempt, len(encoded))

        def send() -> None:
            staging = self._group.staging(len(encoded), torch.uint8)
            staging.numpy()[:] = bytearray(encoded)
            self._group.broadcast(staging, 0)

        self._attempt(send)

    def data(self, start: int, stop: int) -> None:
        """Send elements `[start, stop)`, which are final in this attempt."""
        for first in range(start, stop, _PIECE):
            last = min(first + _PIECE, stop)
            self._send(Kind.DATA, first, last)
            self._attempt(lambda first=first, last=last: self._piece(first, last))  # type: ignore[misc]

    def tell(self, verdict: Verdict) -> None:
        """Say how it ended."""
        self._send(verdict.kind, verdict.version, verdict.mine, verdict.digest, verdict.reason)

    def _piece(self, first: int, last: int) -> None:
        staging = self._group.staging(last - first, self._average.dtype)
        _copy(self._average[first:last], staging)
        self._group.broadcast(staging, 0)

    def _send(self, kind: Kind, number: int = 0, stop: int = 0, digest: bytes = b"", text: str = "") -> None:
        packed = _HEADER.pack(kind, len(digest), number, stop, digest, text.encode()[:_TEXT])

        def send() -> None:
            header = self._group.staging(_HEADER.size, torch.uint8)
            header.numpy()[:] = bytearray(packed)
            self._group.broadcast(header, 0)

        self._attempt(send)

    def _attempt(self, action: Callable[[], None]) -> None:
        if self._group.size == 1 or self.broken:
            return
        try:
            action()
        except LocalGroupError as error:
            self.broken = str(error)


def follow(
    group: Group,
    average: Tensor,
    complete: Callable[[], object],
    restarted: Callable[[int, Sequence[Participant]], object] = lambda attempt, parts: None,
    taken: Callable[[int, int], object] = lambda start, stop: None,
    waits: Callable[[], object] = lambda: None,
) -> Verdict:
    """A follower's end: take the average as it comes, and the verdict.

    Args:
        group: the cluster.
        average: where the average goes.
        complete: called each time all of an attempt has arrived.
        restarted: called each time the leader begins an attempt, with its number and who takes part.
        taken: called with each range `[start, stop)` that has arrived in it.
        waits: called each time the leader says that the mesh takes its time; may raise, to wait no longer.

    Raises:
        LocalGroupError: the group broke, or the leader sent what makes no sense.
    """
    arrived = 0
    while True:
        kind, number, stop, digest, text = _receive(group)
        if kind is Kind.RESTART:
            arrived = 0
            restarted(number, _parts(group, stop))
        elif kind is Kind.DATA:
            arrived += _take(group, average, number, stop)
            taken(number, stop)
            if arrived == average.numel():
                complete()
        elif kind is Kind.WAIT:
            waits()
        else:
            return Verdict(kind, number, digest, stop, text)


def _receive(group: Group) -> tuple[Kind, int, int, bytes, str]:
    header = group.staging(_HEADER.size, torch.uint8)
    group.broadcast(header, 0)
    kind, length, number, stop, digest, text = _HEADER.unpack(bytes(header.numpy()))
    try:
        return Kind(kind), number, stop, digest[:length], text.rstrip(b"\0").decode(errors="replace")
    except ValueError as error:
        raise LocalGroupError(f"leader {group.members[0]} sent a header of kind {kind}") from error


def _parts(group: Group, length: int) -> Sequence[Participant]:
    if length > _MOST_PARTS:
        raise LocalGroupError(f"leader {group.members[0]} announced {length} bytes of participants")
    staging = group.staging(length, torch.uint8)
    group.broadcast(staging, 0)
    try:
        return msgspec.msgpack.decode(bytes(staging.numpy()), type=tuple[Participant, ...])
    except MALFORMED as error:
        raise LocalGroupError(f"leader {group.members[0]} sent participants that do not decode: {error}") from error


def _take(group: Group, average: Tensor, start: int, stop: int) -> int:
    if not 0 <= start < stop <= average.numel() or stop - start > _PIECE:
        raise LocalGroupError(f"leader {group.members[0]} announced elements {start} to {stop} of {average.numel()}")
    staging = group.staging(stop - start, average.dtype)
    group.broadcast(staging, 0)
    _copy(staging, average[start:stop])
    return stop - start


def _copy(content: Tensor, place: Tensor) -> None:
    """Copy a piece in this thread alone: torch divides it among a team, which then spins beside whoever trains."""
    np.copyto(place.numpy(), content.numpy())
