"""What a leader tells the mesh about its cluster, and when.

What happens (who works here, who leads, whether they train) is told at once. What is merely measured changes all the
time and is news to every cluster, so it spreads as a detail, as the version of the state does. And it waits: in a mesh
of N clusters each may publish measurements N / rate seconds after its last publication, and all of them together no
faster than the rate, however large the mesh; a cluster of hundreds of workers, whose card is long, more seldom still.

A record has a longest payload. A cluster of more workers than fit is in the mesh all the same, by those who fit: the
others train inside their cluster, but have no vote, and no other cluster can reach them. That is told (`Crowded`).
"""

from __future__ import annotations

import msgspec

from ictp2p.core.cards import ClusterCard, Limits, encode_card, fitted
from ictp2p.core.commands import Crowded
from ictp2p.core.context import Context
from ictp2p.core.neighbourhood import Neighbourhood
from ictp2p.core.packets import Channel
from ictp2p.gossip.messages import MAX_PAYLOAD

_MEASUREMENTS_RATE = 4.0
"""Publications per second, in all of the mesh, of which only link measurements are new: each reaches every cluster
several times, and there are as many publishers as clusters. The planner loses nothing: rounds are further apart."""
_ORDINARY = 16 * 1024
"""Bytes of a card up to which it is published at that rate; a longer one as much more seldom as it is longer."""


class Publication:
    """The card of one cluster, in the hands of its leader.

    Args:
        context: the stack's.
        neighbourhood: whose measurements are published.
        limits: what plans may ask of this peer.
    """

    def __init__(self, context: Context, neighbourhood: Neighbourhood, limits: Limits) -> None:
        self.training = False
        """Whether rounds should wait for this cluster, for all that this peer's own training thread says.

        A leader that has just started again has said nothing yet, and its mates may be in the middle of calls.
        """
        self.behind = 0.0
        """Seconds that it needs to fetch the state, if it has been overtaken at that; else 0."""
        self._context = context
        self._neighbourhood = neighbourhood
        self._limits = limits
        self._told: ClusterCard | None = None
        self._told_at = 0.0
        self._length = 0
        """Bytes of what was told last."""
        self._unlisted = 0
        """Workers that did not fit into it."""
        self._due: float | None = None

    def card(self) -> ClusterCard:
        """This cluster as its leader describes it now."""
        context, known = self._context, self._context.directory.peers
        tip = context.m.rounds.tip
        return ClusterCard(
            cluster=context.cluster,
            leader=context.me,
            term=context.m.election.term,
            workers=(context.card, *(known[mate] for mate in context.mates() if mate in known)),
            training=self.training or context.m.rosters.mates_call,
            version=tip[1].state.version if tip else 0,
            links=self._neighbourhood.link_cards(),
            up=self._limits.up,
            room=self._limits.room,
            behind=self.behind,
            lineage=tip[1].lineage if tip else b"",
        )

    def view(self) -> ClusterCard | None:
        """The card of this peer's cluster: its own word if it leads, else what its leader last said."""
        context = self._context
        return self.card() if context.leading else context.directory.clusters.get(context.cluster)

    def begin(self, term: int) -> None:
        """Enter the mesh as the leader of this cluster, elected in `term`: what was told before was another's."""
        card = self.card()
        record = self._record(card)
        effects = self._context.m.mesh.start(record, term << 32, self._context.now)
        self._note(card, record)
        self._context.run(Channel.MESH, effects)

    def renew(self) -> None:
        """Tell the mesh what changed here, if this peer leads; what is merely measured, not too often."""
        self._due = None
        if not self._context.m.mesh.active:
            return
        card, told = self.card(), self._told
        if card == told:
            return
        if told is not None and msgspec.structs.replace(card, links=told.links) == told and self._too_early():
            self.put_off()
            return
        detail = told is not None and told == msgspec.structs.replace(card, links=told.links, version=told.version)
        record = self._record(card)
        effects = self._context.m.mesh.publish(record, self._context.now, detail=detail)
        self._note(card, record)
        self._context.run(Channel.MESH, effects)

    def put_off(self) -> None:
        """Only measurements are new: they wait until the last publication is old enough."""
        if self._context.m.mesh.active and self._due is None:
            self._due = max(self._context.now, self._told_at + self._pause())

    def is_due(self) -> bool:
        """Whether measurements have waited for long enough."""
        return self._due is not None and self._due <= self._context.now

    def next_timeout(self) -> float | None:
        """When they will have."""
        return self._due

    def _record(self, card: ClusterCard) -> bytes:
        """What the mesh is told: all of the card, or what fits."""
        listed = fitted(card, MAX_PAYLOAD)
        unlisted = len(card.workers) - len(listed.workers)
        if unlisted and not self._unlisted:
            self._context.out.append(Crowded(len(card.workers), len(listed.workers)))
        self._unlisted = unlisted
        return encode_card(listed)

    def _note(self, card: ClusterCard, record: bytes) -> None:
        """Remember what was told, once it is on its way."""
        self._told, self._told_at, self._length = card, self._context.now, len(record)
        self._context.directory.learn_cluster(card)

    def _too_early(self) -> bool:
        return self._context.now < self._told_at + self._pause()

    def _pause(self) -> float:
        """Seconds between two publications of measurements alone."""
        return len(self._context.m.mesh.alive()) / _MEASUREMENTS_RATE * max(1.0, self._length / _ORDINARY)
