"""Whose contribution is in a committed round: whoever holds the result holds what its own group averaged, and no more.

Most have to hold the result, and where all average all whoever does holds the parts of all. Where they average in
groups nobody of a whole group may (a line between two of them stalled, say): what these brought is in nobody's state.
Whoever is not credited keeps it, and brings it again, as after a round that it missed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ictp2p.sync.grouping import modules
from ictp2p.sync.grouping.pairs import pairs
from ictp2p.types import ClusterId, PeerId

if TYPE_CHECKING:
    from ictp2p.sync.values import Open


def credited(opened: Open, holders: Collection[PeerId]) -> list[ClusterId]:
    """Name the participants of `opened` whose contribution `holders` hold: all of whose groups have one of them."""
    holding = {p.cluster for p in opened.participants if p.leader in holders}
    bereft = {name for group in _groups(opened) if holding.isdisjoint(group) for name in group}
    return [p.cluster for p in opened.participants if p.cluster not in bereft]


def _groups(opened: Open) -> Sequence[Sequence[ClusterId]]:
    """Who averages with whom; nothing where all do with all."""
    match opened.spec.grouping:
        case "pairs":
            return pairs(opened.state.digest, [p.cluster for p in opened.participants])
        case "modules":
            return [group.clusters for group in modules.groups(opened.participants) if group.root is None]
    return []
