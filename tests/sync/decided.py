"""Values that a mesh has decided, one after the other."""

from __future__ import annotations

from msgspec.structs import replace

from ictp2p.sync.values import (
    Close,
    Open,
    Participant,
    Spec,
    StateRef,
    Voters,
)
from ictp2p.types import ClusterId, PeerId

A, B, C = (PeerId(f"{i:032x}") for i in range(1, 4))
LINEAGE = b"lineage!"
SPEC = Spec("sync", "diloco", "float32", 10, "avg", "none")
STATE = StateRef(4, b"digest", (A,))
VOTERS = Voters(LINEAGE, (A, B), STATE, A, 7, 2)
PARTS = (Participant(ClusterId("a"), A, 1, 1.0), Participant(ClusterId("b"), B, 3, 2.5))
OPEN = Open(LINEAGE, (A, B), STATE, A, 7, 2, SPEC, PARTS, b"plan", "star", 30.0)
CREDITS = ((ClusterId("a"), 5), (ClusterId("b"), 5))
COMMIT = Close(LINEAGE, (A, B), StateRef(5, b"next", (A, B), CREDITS, (0, 0)), A, 7, 2, True, b"next", "2 of 2", (A, B))
ABORT = Close(LINEAGE, (A, B), STATE, A, 7, 2, False, b"", "b failed", ())
APART = replace(ABORT, camps=((ClusterId("a"),), (ClusterId("b"),)))


def peers(count: int) -> tuple[PeerId, ...]:
    return tuple(PeerId(f"{i:032x}") for i in range(count))
