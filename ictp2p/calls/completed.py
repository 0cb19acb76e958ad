"""What a call that was a round of the mesh comes to, for every worker of every cluster in it."""

from __future__ import annotations

import msgspec

from ictp2p.types import ClusterId, PeerId


class Completed(msgspec.Struct, frozen=True, array_like=True):
    """A round that every participant has the result of."""

    round: int
    """Its number; the same everywhere."""
    clusters: tuple[ClusterId, ...]
    """Whose contributions are in it."""
    seconds: float
    """From READY to the decision, at this cluster's leader."""
    bytes_sent: int
    """By this cluster's leader."""
    bytes_received: int
    """By this cluster's leader."""
    plan: str
    """Kind of the schedule."""
    reason: str
    """Why that one."""
    workers: tuple[PeerId, ...] = ()
    """Those of this cluster whose tensors are in it."""
