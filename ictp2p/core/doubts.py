"""Which of our links show so much less than the lines at their ends that their probe may have gone wrong.

A probe lasts for a second or two, and what happens in it, a loss in the wrong moment or somebody else's traffic, may
leave a third of what the link is. A line is as wide at least as the widest link at it, as any cluster's card tells it.
A link that stays far below both of its lines is slow in truth, or was measured badly; which of the two only another
probe tells, and a later one whether it has recovered (`gossip.links` says when). Plans rest on that: of eight clusters
behind lines of their own a few links measured badly had three of ten meshes do without the plan that was best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from ictp2p.core.cards import ClusterCard, LinkCard
from ictp2p.types import ClusterId

DOUBTED = 0.6
"""Part of the narrower of its two lines below which a link is doubted. From `lines.NEAR` on plans take it for that."""
FEW = 16
"""Clusters up to which it is looked at: among more each has more links than it may probe anyway."""


def doubtful(me: ClusterId, links: Sequence[LinkCard], cards: Iterable[ClusterCard]) -> tuple[ClusterId, ...]:
    """Name the neighbours to which less goes than should, the most doubtful first.

    Args:
        me: our cluster.
        links: as we measure them.
        cards: of all clusters.
    """
    told = [card for card in cards if card.cluster != me]
    if len(told) >= FEW:
        return ()
    up = max((link.bandwidth_out for link in links), default=0.0)
    down = {link.neighbour: link.bandwidth_out for link in links}
    for card in told:  # all links of the mesh, at each notice of one of ours: only lines at ours are looked at
        at = card.cluster
        if at in down:
            down[at] = max(down[at], max((link.bandwidth_in for link in card.links), default=0.0))
        for link in card.links:
            if link.neighbour == me:
                up = max(up, link.bandwidth_in)
            elif link.bandwidth_out > down.get(link.neighbour, inf):
                down[link.neighbour] = link.bandwidth_out
    parts = {link.neighbour: link.bandwidth_out / min(up, down[link.neighbour]) for link in links if link.bandwidth_out}
    return tuple(sorted((name for name, part in parts.items() if part < DOUBTED), key=lambda name: (parts[name], name)))
