"""How a call ends for the followers of a cluster: what their leader tells them, and what they raise.

The leader alone hears from the mesh. Its followers wait for its stream, with no deadline of their own, so whatever
becomes of the call has to be told: an error that was not would leave them waiting until their group breaks. It is told
as words behind its type's name, since nothing is pickled; what a follower raises so is of the same type (`kind_of`),
and says whose it was: once, though a follower may hand on to a mate what it was told itself.
"""

from __future__ import annotations

import contextlib

from ictp2p.errors import IctError, LocalGroupError
from ictp2p.sync.cluster.broadcasts import broadcast_bytes
from ictp2p.sync.mesh import Group
from ictp2p.sync.two_level.stream import Kind, Publisher, Verdict, kind_of

_WHOSE = "at this cluster's leader: "


def tell_success(group: Group, publisher: Publisher, verdict: Verdict, encoded: bytes) -> None:
    """End the followers' wait. If they cannot be told, they learn it in the next group: what is decided stays."""
    publisher.tell(verdict)
    if not publisher.broken:
        with contextlib.suppress(LocalGroupError):
            broadcast_bytes(group, encoded, 0)


def tell_failure(group: Group, publisher: Publisher, error: IctError) -> None:
    """End the followers' wait with an error."""
    publisher.tell(Verdict(Kind.STOP))
    if not publisher.broken:
        with contextlib.suppress(LocalGroupError):
            broadcast_bytes(group, in_bytes(error), 0)


def in_bytes(error: IctError) -> bytes:
    """An error as it is told."""
    return f"{type(error).__name__}: {error}".encode()


def as_told(encoded: bytes) -> IctError:
    """The leader's error, as its followers raise it."""
    name, _, text = encoded.decode(errors="replace").partition(": ")
    return kind_of(name)(f"{_WHOSE}{text.removeprefix(_WHOSE)}")
