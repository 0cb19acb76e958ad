"""What this peer believes about the clusters: who leads them, who is doubted, who is gone.

Beliefs come from gossip and differ between peers. They decide whom to wait for, whom to ask and whom to nominate
as voter, so how fast the mesh is; never what it decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ictp2p.types import ClusterId, PeerId


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster, as the membership room sees it."""

    leader: PeerId
    term: int
    alive: bool
    """False once it is dead or has left. Keep such entries in the view for as long as membership does."""
    suspect: bool
    """Suspected, not yet dead: its leader does not answer."""
    training: bool
    """Whether it means to take part in rounds: the coordinator waits for its READY."""
    candidates: tuple[PeerId, ...]
    """Its living workers with a durable disk: who may vote, the leader usually among them."""
    workers: tuple[PeerId, ...] = ()
    """All its living workers, where some of them may not vote."""


class Sight:
    """The newest view, and memory of whose worker each peer was."""

    def __init__(self, me: PeerId, grace: float) -> None:
        self._me = me
        self._grace = grace
        self._homes: dict[PeerId, ClusterId] = {}
        self._unknown_since: dict[PeerId, float] = {}
        self._suspects: frozenset[PeerId] = frozenset()
        self.clusters: dict[ClusterId, ClusterView] = {}

    @property
    def mine(self) -> ClusterId | None:
        """The cluster of this peer, once a view named it."""
        return self._homes.get(self._me)

    def update(self, clusters: Mapping[ClusterId, ClusterView]) -> None:
        """Take a whole new view."""
        self.clusters = {name: clusters[name] for name in sorted(clusters)}
        for name, view in self.clusters.items():
            for peer in (view.leader, *view.candidates, *view.workers):
                self._homes[peer] = name

    def suspect(self, peers: Collection[PeerId]) -> None:
        """Take the set of single peers that are suspected, beyond what the view says."""
        self._suspects = frozenset(peers)

    def mind(self, voters: Collection[PeerId], now: float) -> None:
        """Note since when voters are known by name only."""
        unknown = [v for v in voters if v not in self._homes and v != self._me]
        self._unknown_since = {v: self._unknown_since.get(v, now) for v in unknown}

    def next_change(self, now: float) -> float | None:
        """When, with nothing new, some voter will be taken for gone."""
        return min((t + self._grace for t in self._unknown_since.values() if t + self._grace > now), default=None)

    def steady(self, cluster: ClusterId) -> bool:
        """Whether a cluster is alive and not doubted."""
        view = self.clusters.get(cluster)
        return view is not None and view.alive and not view.suspect and view.leader not in self._suspects

    def doubt(self, cluster: ClusterId, leader: PeerId, term: int) -> str | None:
        """Why this leader may not be able to speak for its cluster now, or None."""
        if leader == self._me:
            return None
        view = self.clusters.get(cluster)
        if leader in self._suspects:
            return f"{cluster}'s leader {leader} is suspected"
        if view is None:
            return f"{cluster} is gone" if leader in self._homes else None
        if not view.alive:
            return f"{cluster} is dead"
        if view.term > term or (view.term == term and view.leader != leader):
            return f"{cluster}'s leader is {view.leader} in term {view.term}, not {leader} in term {term}"
        return f"{cluster} is suspected" if view.suspect else None

    def gone(self, peer: PeerId, now: float) -> bool:
        """Whether a voter is dead, or left, for all that is known."""
        if peer == self._me:
            return False
        home = self._homes.get(peer)
        if home is None:
            return peer in self._unknown_since and now >= self._unknown_since[peer] + self._grace
        view = self.clusters.get(home)
        if view is None or not view.alive:
            return True
        return not view.suspect and peer != view.leader and peer not in view.candidates

    def lives(self, peer: PeerId) -> bool:
        """Whether a worker, voter or not, belongs to a cluster that is alive, and nobody says that it died."""
        view = self.clusters.get(self._homes[peer]) if peer in self._homes else None
        if view is None or not view.alive:
            return peer == self._me
        return view.suspect or peer in (self._me, view.leader, *view.candidates, *view.workers)

    def doubted(self, peer: PeerId, now: float) -> bool:
        """Whether one should not wait for `peer` to act as coordinator or voter."""
        if peer == self._me:
            return False
        home = self._homes.get(peer)
        suspect = home is not None and home != self.mine and home in self.clusters and self.clusters[home].suspect
        return suspect or peer in self._suspects or self.gone(peer, now)

    def leaders(self) -> tuple[PeerId, ...]:
        """Leaders of the clusters that are alive."""
        return tuple(view.leader for view in self.clusters.values() if view.alive)

    def workers(self) -> tuple[PeerId, ...]:
        """Every other worker of the clusters that are alive, by cluster."""
        views = (view for view in self.clusters.values() if view.alive)
        known = dict.fromkeys(peer for v in views for peer in (v.leader, *v.candidates, *v.workers))
        return tuple(peer for peer in known if peer != self._me)

    def followers(self) -> tuple[PeerId, ...]:
        """The workers whom this peer keeps informed: those of its own cluster, if it leads it."""
        view = None if self.mine is None else self.clusters.get(self.mine)
        return view.candidates if view is not None and view.leader == self._me else ()
