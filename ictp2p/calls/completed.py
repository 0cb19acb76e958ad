"""The result of a call that was a round of the mesh, for every worker of every cluster in it."""

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
    """From when this cluster's leader was ready for the round to the decision."""
    bytes_sent: int
    """By this cluster's leader, to other clusters."""
    bytes_received: int
    """By this cluster's leader, from other clusters."""
    plan: str
    """The kind of schedule by which clusters exchanged their parts."""
    reason: str
    """Why that schedule was chosen."""
    workers: tuple[PeerId, ...] = ()
    """Those of this cluster whose tensors are in it."""
