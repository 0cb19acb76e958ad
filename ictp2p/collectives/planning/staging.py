"""How much room each contribution gets where it is added up, and how long it holds a plan back.

A participant may be so far ahead of the results that it holds as there is room for it at its parent (`exchange`). The
bytes on the way up and down again are those of a bandwidth-delay product, as of a TCP connection (RFC 7323, section
1.1): what the share carries per second, times the seconds of a chunk through its tree. Over short ways an even part of
`STAGING_BYTES` is more than that, and nothing is asked for. Over long ones each share asks for its own product and some
to spare; where these exceed what a participant gives at most, all that lead there are cut in the same proportion. What
then is left tops a share up to its even part: lines have queues, in which a chunk waits as long again as it travels,
and two clusters 100 ms apart used 0.75 of their line without this, and 0.88 with it and `lane.LEAD_SECONDS`.

The room is written into the plan, which is agreed: so both ends of an edge know it, and nobody asks or grants on the
way. What it comes to is what the prediction reckons with. Whoever sends uses less of an even part where the way to the
next participant is short, and cannot know of long ways behind that: so even parts are left to shares that need no more
than what is always sent ahead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.planning.schedules.forest import Numbers
from ictp2p.collectives.planning.schedules.trees import Matrix
from ictp2p.collectives.running.windows import AHEAD_BYTES, MAX_WINDOW, STAGING_BYTES

SPARE = 1.5
"""Times the bandwidth-delay product: chunks of other shares go first now and then, and queues make ways longer."""
_LEAST = 2
"""Chunks that every contribution has room for: one on its way while the result of the other comes back."""


def divide(
    edges: Numbers, sizes: Matrix, seconds: float, ways: Matrix, partial: int, limits: Matrix
) -> tuple[int, ...]:
    """Give the bytes of room of each share; all 0 if no more is needed than always goes ahead, or can be had.

    Args:
        edges: per share and participant, from how many it gets contributions.
        sizes: bytes of each contribution to each share.
        seconds: in which all are through if nothing holds them back.
        ways: seconds of a chunk up and down each tree.
        partial: the most bytes of a chunk's contribution.
        limits: bytes that each participant gives at most.
    """
    none = (0,) * len(edges)
    needs = sizes * np.minimum(1.0, ways / max(seconds, 1e-9))
    if (np.minimum(windows(none, edges, partial) * partial, AHEAD_BYTES) >= needs).all():
        return none
    least = _LEAST * partial
    left = limits - least * edges.sum(axis=0)
    if (left <= 0).any() or not needs.any():
        return none
    granted = _cut(np.minimum(SPARE * needs, sizes), edges, left)
    even = windows(none, edges, partial) * partial
    granted += _cut(np.maximum(np.minimum(even, sizes) - least - granted, 0.0), edges, left - granted @ edges)
    return tuple((least + granted).astype(np.int64).tolist())


def _cut(wanted: Matrix, edges: Numbers, left: Matrix) -> Matrix:
    """Give each share what it wants, or so much less that nobody gives more than it has left."""
    asked, left = wanted @ edges, np.maximum(left, 0.0)
    part = np.divide(left, asked, out=np.ones_like(left), where=asked > left)
    cut: Matrix = wanted * np.where(edges > 0, part, 1.0).min(axis=1)
    return cut


def windows(rooms: Sequence[int], edges: Numbers, partial: int) -> npt.NDArray[np.int64]:
    """Count the chunks of each share that may be ahead of their results: what `lane` makes of its room."""
    even = np.clip(STAGING_BYTES // np.maximum(1, edges.sum(axis=0) * partial), 1, MAX_WINDOW)
    narrowest = np.where(edges > 0, even, MAX_WINDOW).min(axis=1)
    asked = np.asarray(rooms, dtype=np.int64)
    return np.where(asked > 0, np.maximum(1, asked // partial), narrowest)


def held_back(counts: Matrix, ways: Matrix, window: npt.NDArray[np.int64]) -> float:
    """Give the seconds of the share that its window holds back the most, of so many chunks each."""
    return float((counts / window * ways).max(initial=0.0))
