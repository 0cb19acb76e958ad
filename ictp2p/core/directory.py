"""Who is who: every worker that any view of this peer has named, and who leads each cluster.

Three sources feed it: greetings on connections (authenticated by TLS), the cluster's own gossip, and the mesh's.
A worker's card is kept after its death, because a vote or a frame that was on its way still has to be understood, and
a partition heals by dialing across it. But not for ever: a worker without a disk is somebody else after each start, and
who is named by nobody for a day is forgotten (as after Serf's `reconnect_timeout`), of too many the first ones sooner.
So is a cluster that the mesh has not had for a day, but for the last few: each job of a scheduler may be one, and else
every leader would dial all that ever died. That day counts only while a quorum is in touch: whoever is cut off keeps in
mind all that could lead back.
Of claims to lead a cluster the highest (term, id) is kept until that cluster dies or leaves.
"""

from __future__ import annotations

from collections.abc import Collection

from ictp2p.core.cards import ClusterCard, PeerCard
from ictp2p.types import Address, ClusterId, PeerId


class Directory:
    """Cards by peer and by cluster, and the best claim to lead each cluster."""

    def __init__(self, me: PeerCard) -> None:
        self.me = me
        self.peers: dict[PeerId, PeerCard] = {me.peer: me}
        self.clusters: dict[ClusterId, ClusterCard] = {}
        self._claims: dict[ClusterId, tuple[int, PeerId]] = {}
        self._lapsed: set[ClusterId] = set()
        self._unnamed: dict[PeerId, float] = {}
        """Since when those are named by nobody whose cards are kept all the same, seconds."""
        self._absent: dict[ClusterId, float] = {}
        """Since when the mesh has not had these clusters, seconds."""
        self.revision = 0
        """Grows with every change but of what clusters measure and which state they hold: those concern plans alone."""
        self.surveys = 0
        """Grows with every change of what clusters measure."""

    def endpoint(self, peer: PeerId) -> Address | None:
        """Where we can dial a worker; None if we cannot, or do not know it."""
        card = self.peers.get(peer)
        return card.endpoint(mate=card.cluster == self.me.cluster) if card is not None else None

    def reached_at(self, peer: PeerId) -> Address | None:
        """Where a worker can dial us; None if it cannot, as far as our card tells it."""
        return self.me.endpoint(mate=self.cluster_of(peer) == self.me.cluster)

    def learn_peer(self, card: PeerCard) -> None:
        """Remember a worker's card; observers belong to no cluster and are not remembered."""
        if card.cluster and card.peer != self.me.peer and self.peers.get(card.peer) != card:
            self.peers[card.peer] = card
            self.revision += 1

    def learn_claim(self, cluster: ClusterId, term: int, leader: PeerId) -> bool:
        """Somebody leads a cluster, by its own word or another's; the highest (term, id) holds. Whether it is news."""
        held = self._claims.get(cluster, (0, PeerId("")))
        lapsed = cluster in self._lapsed and leader != held[1]
        if not (leader and cluster and (lapsed or (term, leader) > held)):
            return False
        self._claims[cluster] = (term, leader)
        self.revision += 1
        self._lapsed.discard(cluster)
        return True

    def lapse(self, cluster: ClusterId) -> None:
        """A cluster died: its leader is still whom to dial, but whoever comes back may begin at a lower term.

        Until its card is heard again: then the higher claim holds as before.
        """
        self._lapsed.add(cluster)

    def learn_cluster(self, card: ClusterCard) -> bool:
        """Remember a cluster's card and its workers'; whether its claim is news."""
        known = self.clusters.get(card.cluster)
        self.clusters[card.cluster] = card
        self.revision += known is None or _standing(known) != _standing(card)
        self.surveys += known is not None and known.links != card.links
        news = self.learn_claim(card.cluster, card.term, card.leader)
        self._lapsed.discard(card.cluster)
        for worker in card.workers:
            self.learn_peer(worker)
        return news

    def forget_cluster(self, cluster: ClusterId) -> None:
        """A cluster left."""
        self.revision += 1
        self._lapsed.discard(cluster)
        self.clusters.pop(cluster, None)
        self._claims.pop(cluster, None)

    def forget(self, here: Collection[PeerId], now: float, after: float, most: int) -> None:
        """Drop the cards of those whom nobody named for `after` seconds: no cluster's card, and they were not `here`.

        Args:
            here: who is known to be there.
            now: seconds.
            after: seconds.
            most: how many are kept for that long; of more, those last named and with a disk, who may be back.
        """
        listed = {worker.peer for card in self.clusters.values() for worker in card.workers}
        named = listed.union(here, (leader for _, leader in self._claims.values()), (self.me.peer,))
        self._unnamed = {peer: self._unnamed.get(peer, now) for peer in self.peers if peer not in named}
        order = sorted(self._unnamed, key=lambda peer: (self.peers[peer].durable, self._unnamed[peer]))
        surplus = len(order) - most
        for peer in [peer for i, peer in enumerate(order) if i < surplus or now - self._unnamed[peer] >= after]:
            del self.peers[peer], self._unnamed[peer]
            self.revision += 1

    def forget_clusters(self, present: Collection[ClusterId], now: float, after: float, last: int) -> None:
        """Drop the other clusters that the mesh has not had for `after` seconds, all but the `last` ones with a card.

        Of some no more is known than who leads them: they died before their card came, or left, and one of their
        workers still greeted.

        Args:
            present: those that it has, or has had of late. All, as long as nobody can tell.
            now: seconds.
            after: seconds.
            last: how many are kept for good, in case that they can be dialed, and cannot dial.
        """
        absent = {*self.clusters, *self._claims} - {*present, self.me.cluster}
        self._absent = {cluster: self._absent.get(cluster, now) for cluster in absent}
        newest = sorted(absent & self.clusters.keys(), key=lambda cluster: (-self._absent[cluster], cluster))
        for cluster in sorted(absent.difference(newest[:last])):
            if now - self._absent[cluster] >= after:
                del self._absent[cluster]
                self.forget_cluster(cluster)

    def cluster_of(self, peer: PeerId) -> ClusterId | None:
        """The cluster that a peer belongs to, if anybody said so."""
        card = self.peers.get(peer)
        return card.cluster if card else None

    def in_words(self, peer: PeerId) -> str:
        """Name a worker so that people find it: with its cluster, and where it was dialed, as far as both are known."""
        card = self.peers.get(peer)
        if card is None:
            return peer
        address = card.address or card.inside
        return f"{peer} of {card.cluster}{f' at {address}' if address else ''}"

    def living(self) -> list[ClusterCard]:
        """The cards of the clusters that are not known to be dead."""
        return [card for cluster, card in self.clusters.items() if cluster not in self._lapsed]

    def leader_of(self, cluster: ClusterId) -> PeerId | None:
        """Who leads a cluster, by the highest claim heard."""
        claim = self._claims.get(cluster)
        return claim[1] if claim else None

    def count(self, cluster: ClusterId) -> int:
        """How many workers of a cluster are known, dead ones among them."""
        return sum(card.cluster == cluster for card in self.peers.values())

    def mates(self) -> list[PeerCard]:
        """The known workers of this peer's own cluster, itself excluded, by id."""
        mates = (c for c in self.peers.values() if c.cluster == self.me.cluster and c.peer != self.me.peer)
        return sorted(mates, key=lambda card: card.peer)


def _standing(card: ClusterCard) -> tuple[object, ...]:
    """What others act upon in a cluster's card."""
    return (card.leader, card.term, card.workers, card.training, card.behind, card.lineage)
