"""How much may be on its way: room for contributions that have arrived, and windows of chunks where no room is planned.

Both ends of an edge derive a window from the plan, which they agreed on, so that no credit message is needed.
"""

from __future__ import annotations

from collections import Counter

from ictp2p.collectives.plan import Plan

STAGING_BYTES = 32 * 1024 * 1024
"""Room that a participant keeps for partials that have arrived and are not yet used, where the plan asks for none
(`staging`). Both ends of an edge derive the window from it, so it belongs to the wire version. Precedent: eight times
Linux's largest default receive buffer."""

AHEAD_BYTES = 2 * 1024 * 1024
"""Bytes on their way that keep a link without delay busy. More only falls out of the caches before it is used."""

ROOM_BYTES = 256 * 1024 * 1024
"""The most room that a plan may ask of a participant which says nothing else."""

MAX_WINDOW = 64
"""Chunks, of such an even part."""
MIN_WINDOW = 2
"""One chunk on its way while the result of the other comes back."""


def even_windows(plan: Plan, partial_bytes: int) -> list[int]:
    """Split the least room of each participant evenly over the edges that lead into it; at least one chunk each."""
    edges: Counter[int] = Counter()
    for share in plan.shares:
        if share.stop > share.start:
            edges.update(share.reduce_parents)
    return [
        max(1, min(MAX_WINDOW, STAGING_BYTES // max(1, edges[node] * partial_bytes)))
        for node in range(len(plan.participants))
    ]
