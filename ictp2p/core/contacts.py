"""Whom a peer wants to be connected to: its cluster's other workers, and, while it leads, leaders that `overlay` picks.

The dead are among them, for a partition heals by somebody's dialing across it. Who said goodbye is not, nor is a dead
worker at whose address another lives: a worker without a disk that was started again is that other, and on one host
each job of a scheduler may be a cluster of its own. Else the living one would refuse all its predecessors' callers.
"""

from __future__ import annotations

from ictp2p.core import views
from ictp2p.core.context import Context
from ictp2p.core.meetings import Meetings
from ictp2p.core.overlay import Overlay
from ictp2p.gossip.messages import Status
from ictp2p.types import Address, ClusterId, PeerId


class Contacts:
    """The wishes of one peer.

    Args:
        context: the stack's.
        meetings: who said goodbye.
        complete: clusters up to which every two leaders stay connected.
    """

    def __init__(self, context: Context, meetings: Meetings, complete: int) -> None:
        self._context = context
        self._meetings = meetings
        self._overlay = Overlay(context.cluster, complete)
        self._dead: set[PeerId] = set()
        """Mates who were dead when membership last named them: it forgets the dead before their cards are."""

    def wanted(self) -> dict[PeerId, Address]:
        """Whom to be connected to, and where they can be dialed."""
        gone = self._gone()
        wanted = [mate.peer for mate in self._context.directory.mates() if mate.peer not in gone]
        picked = self._picked()  # by a follower too: whether the mesh is sparse has hysteresis
        return views.dialable(self._context.directory, [*wanted, *(picked if self._context.leading else ())])

    @property
    def crowded(self) -> bool:
        """Whether the mesh is too large for all to be connected to all, or about to be."""
        return self._overlay.crowded

    def can_be_spared(self, peer: PeerId) -> bool:
        """Connections to other clusters, in a mesh that is not complete; an observer is none's business.

        In one that is complete, those that are not between two leaders: a worker came in over them, or looked for a
        quorum. Once there is one they lead to nobody who is not met otherwise, and of workers there may be hundreds. A
        cluster that has no leader yet is met by what its workers came in over, and by nothing else.
        """
        context = self._context
        cluster = context.directory.cluster_of(peer)
        if cluster is None or cluster == context.cluster:
            return False
        leaders = (context.leader, context.directory.leader_of(cluster))
        between = None not in leaders and leaders != (context.me, peer)
        return self._overlay.sparse or (between and context.m.rounds.in_touch())

    def _gone(self) -> set[str]:
        """Former workers of this cluster who will not be back."""
        context, members = self._context, self._context.m.members.members
        workers = (context.card, *context.directory.mates())
        here = (card for card in workers if card.peer in members and members[card.peer].status.present)
        taken = {card.endpoint(mate=True) for card in here} - {None}
        gone = {name for name, member in members.items() if member.status is Status.LEFT}
        self._dead = {card.peer for card in workers if self._is_dead(card.peer)}
        dead = (card for card in workers if card.peer in self._dead)
        return gone.union(self._meetings.departed, (card.peer for card in dead if card.endpoint(mate=True) in taken))

    def _is_dead(self, mate: PeerId) -> bool:
        known = self._context.m.members.members.get(mate)
        return mate in self._dead if known is None else known.status is Status.DEAD

    def _picked(self) -> list[PeerId]:
        leaders, members = self._leaders(), self._context.m.mesh.members
        present = [name for name in leaders if name in members and members[name].status.present]
        absent = [name for name in leaders if name not in members or not members[name].status.present]
        if absent:
            taken, peers = self._taken(), self._context.directory.peers
            absent = [name for name in absent if peers[leaders[name]].address not in taken]
        return [leaders[name] for name in sorted(self._overlay.picks(present, absent))]

    def _taken(self) -> set[str]:
        """Addresses of the living, as far as is known: this peer's own, and those of all workers of living clusters."""
        context = self._context
        living = views.present_peers(context.directory, context.m.mesh, context.m.members)
        return {card.address for peer, card in context.directory.peers.items() if peer in living and card.address}

    def _leaders(self) -> dict[ClusterId, PeerId]:
        """The leaders of other clusters that can be dialed, were they alive; of those that left, none.

        A cluster whose workers cannot reach each other has several, and that one leaves tells nothing of the rest: who
        is connected to a worker of it goes by that.
        """
        directory, members = self._context.directory, self._context.m.mesh.members
        here = {directory.cluster_of(peer) for peer in self._meetings.greeted}
        found: dict[ClusterId, PeerId] = {}
        for name in sorted(directory.clusters):
            leader, known = directory.leader_of(name), members.get(name)
            if leader is None or name == self._context.cluster or leader in self._meetings.departed:
                continue
            card = directory.peers.get(leader)
            left = known is not None and known.status is Status.LEFT and name not in here
            if not left and card is not None and card.endpoint() is not None:
                found[name] = leader
        return found
