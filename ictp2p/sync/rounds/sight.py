"""What this peer believes about the clusters: who leads them, who is doubted, who is gone.

Beliefs come from gossip and differ between peers. They decide whom to wait for, whom to ask and whom to nominate
as voter, so how fast the mesh is; never what it decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

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
    behind: float = 0.0
    """Seconds that it needs to fetch the state, having been overtaken at that before; else 0."""
    workers: tuple[PeerId, ...] = ()
    """All its living workers, where some of them may not vote."""


class _Loss(NamedTuple):
    """A cluster has lost its leader."""

    since: float
    leader: PeerId
    term: int


_FORMER = 4096
"""Peers of which it is remembered whose workers they were once: a worker without a disk is another after each start."""


class Sight:
    """The newest view, and memory of whose worker each peer was.

    Args:
        me: this peer.
        grace: seconds after which a voter that is known by name only is gone (`RoundProfile.voter_grace`).
        pause: seconds for which a cluster that has ended its training may be between that and a call.
    """

    def __init__(self, me: PeerId, grace: float, pause: float) -> None:
        self._me = me
        self._grace = grace
        self._pause = pause
        self._homes: dict[PeerId, ClusterId] = {}
        self._unknown_since: dict[PeerId, float] = {}
        self._suspects: frozenset[PeerId] = frozenset()
        self._led: frozenset[ClusterId] = frozenset()
        """Clusters that were seen with a leader who answers."""
        self._bereft: dict[ClusterId, _Loss] = {}
        """Those of them that have none, since when, and whom they lost."""
        self._returned: dict[ClusterId, float] = {}
        self._ended: dict[ClusterId, float] = {}
        """When clusters that are alive ended their training, where that was seen."""
        self.clusters: dict[ClusterId, ClusterView] = {}
        self.met: frozenset[PeerId] = frozenset()
        """Whoever has greeted us and not said goodbye. Newcomers are in no view before their cluster has a leader."""

    @property
    def mine(self) -> ClusterId | None:
        """The cluster of this peer, once a view named it."""
        return self._homes.get(self._me)

    def update(self, clusters: Mapping[ClusterId, ClusterView], now: float) -> None:
        """Take a whole new view."""
        self._note_ends(clusters, now)
        self.clusters = {name: clusters[name] for name in sorted(clusters)}
        for name, view in self.clusters.items():
            for peer in (view.leader, *view.candidates, *view.workers):
                self._homes[peer] = name
        self._forget()
        self._mourn(now)

    def suspect(self, peers: Collection[PeerId], now: float) -> None:
        """Take the set of single peers that are suspected, beyond what the view says."""
        self._suspects = frozenset(peers)
        self._mourn(now)

    def mind(self, voters: Collection[PeerId], now: float) -> None:
        """Note since when voters are known by name only."""
        unknown = [v for v in voters if v not in self._homes and v != self._me]
        self._unknown_since = {v: self._unknown_since.get(v, now) for v in unknown}

    def next_change(self, now: float) -> float | None:
        """When, with nothing new, some voter will be taken for gone, or some cluster for one that calls nothing."""
        gone = (*self._unknown_since.values(), *(loss.since for loss in self._bereft.values()))
        ends = (*(t + self._grace for t in gone), *(t + self._pause for t in self._ended.values()))
        return min((t for t in ends if t > now), default=None)

    def steady(self, cluster: ClusterId) -> bool:
        """Whether a cluster is alive and not doubted."""
        view = self.clusters.get(cluster)
        return view is not None and view.alive and not view.suspect and view.leader not in self._suspects

    def wavering(self, cluster: ClusterId) -> float | None:
        """Since when a cluster that is alive is doubted: it or its leader is suspected; None if it is not.

        The one is said before the other, and taken back before the other.
        """
        view = self.clusters.get(cluster)
        if view is None or not view.alive or self.steady(cluster):
            return None
        return self._bereft[cluster].since if cluster in self._bereft else 0.0

    def bereft(self, cluster: ClusterId) -> float | None:
        """Since when a cluster lacks a leader whose other workers, for all that is known, live; None if it has one."""
        if cluster not in self._bereft:
            return None
        view, loss = self.clusters[cluster], self._bereft[cluster]
        heirs = {view.leader, *view.candidates, *view.workers} - {loss.leader} - self._suspects
        return loss.since if heirs else None

    def returned(self, cluster: ClusterId) -> float:
        """When a cluster last got a leader that answers after it had lost one; 0 if it never lost one."""
        return self._returned.get(cluster, 0.0)

    def pauses(self, cluster: ClusterId, now: float) -> bool:
        """Whether a cluster ended its training so short a time ago that it may be about to make a call."""
        return cluster in self._ended and now < self._ended[cluster] + self._pause

    def knew(self, peer: PeerId) -> bool:
        """Whether a view has ever named this peer, as far as that is remembered."""
        return peer in self._homes

    def everybody(self) -> frozenset[PeerId]:
        """Every worker whom the view names, also of clusters that are dead, and whoever has greeted us."""
        views = self.clusters.values()
        return self.met.union(*((view.leader, *view.candidates, *view.workers) for view in views))

    def left(self, peer: PeerId) -> bool:
        """Whether a worker's cluster was in a view and is in none any more: it said goodbye, or died long ago."""
        return self.knew(peer) and self._homes[peer] not in self.clusters

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

    def unseated(self, cluster: ClusterId, leader: PeerId, term: int) -> bool:
        """Whether another peer leads this cluster by a higher claim: this one died, or will hear that it leads no more.

        Its own later claim says nothing of that: it may be the same process, and about to vote.
        """
        view = self.clusters.get(cluster)
        if leader == self._me or view is None or not view.alive:
            return False
        return view.leader != leader and (view.term, view.leader) > (term, leader)

    def gone(self, peer: PeerId, now: float) -> bool:
        """Whether a voter is dead, or left, for all that is known.

        A cluster is as good as dead to the mesh from the end of its leader until another worker speaks for it. Its
        other voters live. Dropping them in that moment would leave so few that one more death halts the mesh for good.
        """
        if peer == self._me:
            return False
        home = self._homes.get(peer)
        if home is None:
            return peer in self._unknown_since and now >= self._unknown_since[peer] + self._grace
        view = self.clusters.get(home)
        if view is None:
            return True
        if not view.alive:
            since = self.bereft(home)
            return since is None or peer == self._bereft[home].leader or now >= since + self._grace
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
        view = self.clusters.get(home) if home is not None and home != self.mine else None
        silent = view is not None and (view.suspect or not view.alive)
        return silent or peer in self._suspects or self.gone(peer, now)

    def leaders(self) -> tuple[PeerId, ...]:
        """Leaders of the clusters that are alive."""
        return tuple(view.leader for view in self.clusters.values() if view.alive)

    def workers(self) -> tuple[PeerId, ...]:
        """Every other worker of the clusters that are alive, by cluster."""
        views = (view for view in self.clusters.values() if view.alive)
        known = dict.fromkeys(peer for v in views for peer in (v.leader, *v.candidates, *v.workers))
        return tuple(peer for peer in known if peer != self._me)

    def _note_ends(self, clusters: Mapping[ClusterId, ClusterView], now: float) -> None:
        ended = {name: now for name, view in self.clusters.items() if view.training} | self._ended
        idle = {name for name, view in clusters.items() if view.alive and not view.training}
        self._ended = {name: at for name, at in ended.items() if name in idle}

    def _forget(self) -> None:
        """Of those that are in no view any more the ones seen first go, once they are too many."""
        if len(self._homes) <= _FORMER:
            return
        seen = {self._me, *(p for v in self.clusters.values() for p in (v.leader, *v.candidates, *v.workers))}
        former = [peer for peer in self._homes if peer not in seen]
        for peer in former[: max(0, len(former) - _FORMER)]:
            del self._homes[peer]

    def _mourn(self, now: float) -> None:
        """Note which clusters have just lost their leaders: not those that were never seen with one.

        Of whom a new claim is heard while it is in doubt, it counts from then: the doubt may be taken back in a moment.
        """
        steady = frozenset(name for name in self.clusters if self.steady(name))
        again = {name: now for name in self._bereft if name in steady}
        self._returned = {name: at for name, at in (self._returned | again).items() if name in self.clusters}
        self._led = (self._led | steady) & self.clusters.keys()
        views = {name: view for name, view in self.clusters.items() if name in self._led - steady}
        known = {name: self._bereft.get(name, _Loss(now, view.leader, view.term)) for name, view in views.items()}
        self._bereft = {
            name: loss if loss.term == views[name].term else _Loss(now, loss.leader, views[name].term)
            for name, loss in known.items()
        }

    def followers(self) -> tuple[PeerId, ...]:
        """The workers whom this peer keeps informed: those of its own cluster, if it leads it."""
        view = None if self.mine is None else self.clusters.get(self.mine)
        return view.candidates if view is not None and view.leader == self._me else ()
