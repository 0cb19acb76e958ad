"""What each machine needs to know of the others' knowledge, computed afresh from the views.

Pure functions: the stack compares what they return with what it told a machine last, and tells it only news.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from ictp2p.core.cards import CLUSTERS_KEPT, ClusterCard, LinkCard
from ictp2p.core.directory import Directory
from ictp2p.gossip.link import LinkMeasurement
from ictp2p.gossip.swim import Status, Swim
from ictp2p.routing.algebra import Link
from ictp2p.sync.rounds.sight import ClusterView
from ictp2p.types import Address, ClusterId, PeerId

_FEW = 128
"""Workers of a cluster whose view is kept."""


def cluster_views(
    directory: Directory, mesh: Swim, own: ClusterCard | None, lineage: bytes
) -> dict[ClusterId, ClusterView]:
    """What rounds are told of each cluster; `own` is this peer's, which a passive mesh does not hold.

    Of those whose chain is of another founding than this peer's `lineage` nothing: they may be seen, but vote and take
    part elsewhere. Its own cluster may be one of them, if another worker that leads it founded anew.
    """
    views: dict[ClusterId, ClusterView] = {}
    for name, member in sorted(mesh.members.items()):
        card = directory.clusters.get(ClusterId(name))
        if card is not None and (own is None or name != own.cluster) and not _is_foreign(card, lineage):
            views[card.cluster] = _view_of(card, member.status)
    if own is not None and not _is_foreign(own, lineage):
        views[own.cluster] = _view_of(own, Status.ALIVE)
    return views


def _is_foreign(card: ClusterCard, lineage: bytes) -> bool:
    """Whether a cluster belongs to a mesh that was founded apart."""
    return bool(card.lineage and lineage) and card.lineage != lineage


def _view_of(card: ClusterCard, status: Status) -> ClusterView:
    """The view of a card; those of many workers are not kept, as they would keep their cards."""
    return (_view if len(card.workers) <= _FEW else _view.__wrapped__)(_Same(card), status)


class _Same:
    """A card as a key, compared by identity: comparing two by value costs more than what is computed from them."""

    __slots__ = ("card",)

    def __init__(self, card: ClusterCard) -> None:
        self.card = card

    def __hash__(self) -> int:
        return id(self.card)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.card is other.card


@functools.lru_cache(CLUSTERS_KEPT)
def _view(same: _Same, status: Status) -> ClusterView:
    card = same.card
    workers = tuple(w.peer for w in card.workers)
    durable = tuple(w.peer for w in card.workers if w.durable)
    return ClusterView(
        leader=card.leader,
        term=card.term,
        alive=status.present,
        suspect=status is Status.SUSPECT,
        training=card.training,
        behind=card.behind,
        candidates=durable or workers,
        workers=workers,
    )


def suspected_peers(directory: Directory, mesh: Swim, members: Swim) -> frozenset[PeerId]:
    """Peers that are not worth waiting for: suspected or dead mates, and leaders of suspected or dead clusters."""
    doubtful = {PeerId(name) for name, m in members.members.items() if m.status is not Status.ALIVE}
    for name, member in mesh.members.items():
        if member.status is not Status.ALIVE and (card := directory.clusters.get(ClusterId(name))) is not None:
            doubtful.add(card.leader)
    return frozenset(doubtful - {directory.me.peer})


def present_peers(directory: Directory, mesh: Swim, members: Swim) -> frozenset[PeerId]:
    """Peers that are there, for all that is known: living mates, and the workers of the living clusters."""
    cards = (directory.clusters.get(ClusterId(name)) for name in mesh.alive())
    listed = (worker.peer for card in cards if card is not None for worker in card.workers)
    return frozenset((directory.me.peer, *map(PeerId, members.alive()), *listed))


def link_of(measured: LinkMeasurement) -> Link:
    """A measurement as routing wants it: the round trip, which is known by then, and the slower direction."""
    known = [b for b in (measured.bandwidth_out, measured.bandwidth_in) if b]
    return Link(srtt=measured.srtt or 0.0, bandwidth=min(known) if known else None)


def link_card(neighbour: str, measured: LinkMeasurement) -> LinkCard:
    """A measurement as gossip carries it, rounded so that noise is no news."""
    out, into = measured.bandwidth_out or 0.0, measured.bandwidth_in or 0.0
    bounds = (0.0 if out else measured.at_least_out, 0.0 if into else measured.at_least_in)
    figures = (out, into, measured.min_rtt or 0.0, measured.loss, *bounds)
    return LinkCard(ClusterId(neighbour), *(_rounded(x) for x in figures))


def _rounded(value: float) -> float:
    """Two significant digits."""
    return float(f"{value:.2g}")


def dialable(directory: Directory, peers: Iterable[PeerId]) -> dict[PeerId, Address]:
    """The addresses of those peers that can be dialed."""
    found = {peer: directory.endpoint(peer) for peer in peers}
    return {p: address for p, address in found.items() if address is not None}
