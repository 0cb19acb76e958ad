"""What follows from news of the two memberships: of workers, inside the cluster, and of clusters, in the mesh.

A member's record carries what it says of itself, its card: the directory keeps it. What a cluster says may also concern
this one: another peer leads it, as the mesh has it, or trains something else. And a record that our own key signed,
though not here, is the word of a copy of this peer.
"""

from __future__ import annotations

from ictp2p.core.cards import ClusterCard, PeerCard, decode_cluster_card, decode_peer_card
from ictp2p.core.commands import IdentityTaken, MemberChanged
from ictp2p.core.context import Context
from ictp2p.core.meetings import Meetings
from ictp2p.core.packets import Channel
from ictp2p.core.timetable import Timetable
from ictp2p.gossip.messages import (
    Displaced,
    Doubled,
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    MemberSuspected,
    Record,
)
from ictp2p.machine import Notice
from ictp2p.types import ClusterId, PeerId

_STATUS: dict[type[Notice], str] = {
    MemberJoined: "alive",
    MemberCleared: "alive",
    MemberSuspected: "suspect",
    MemberFailed: "dead",
    MemberLeft: "left",
}


class Membership:
    """What one peer makes of who is there.

    Args:
        context: the stack's.
        timetable: is told when the mesh gets an input that has no effects.
        meetings: who said goodbye, and may be back.
    """

    def __init__(self, context: Context, timetable: Timetable, meetings: Meetings) -> None:
        self._context = context
        self._timetable = timetable
        self._meetings = meetings

    def updated(self, channel: Channel, record: Record) -> None:
        """Learn what a member says anew; mostly measurements and versions, which concern plans alone."""
        context = self._context
        before = context.directory.revision
        self._learn(channel, record)
        context.dirty |= context.directory.revision != before

    def changed(self, channel: Channel, notice: Notice) -> Notice:
        """Act on who is there now, and who is not; give what the driver is told."""
        match notice:
            case MemberJoined(record=record):
                self._learn(channel, record)
                if channel is Channel.MEMBERS:
                    self._meetings.departed.discard(PeerId(record.member))
            case Doubled(record=record):
                return _taken(channel, record)
            case _ if channel is Channel.MESH:
                self._mesh_changed(notice)
        status = _STATUS.get(type(notice))
        if status is None:
            return notice
        return MemberChanged(channel.name.lower(), notice.member, status)  # type: ignore[attr-defined]

    def _mesh_changed(self, notice: Notice) -> None:
        match notice:
            case MemberFailed(member=member):
                self._context.directory.lapse(ClusterId(member))
                self._meetings.recall_claims(ClusterId(member))
            case MemberLeft(member=member):
                self._left(ClusterId(member))
            case Displaced(record=record):
                self._displaced(record)

    def _left(self, cluster: ClusterId) -> None:
        """A cluster left, by the word of one who led it.

        Where its workers could not reach each other, another leads the rest of it, and may be connected. Nothing makes
        that one greet us again, and as long as we do not take it for a leader we answer it no more.
        """
        context = self._context
        context.directory.forget_cluster(cluster)
        known = context.m.mesh.members.get(cluster)
        if known is not None:
            self._meetings.recall_claims(cluster, gone=decode_cluster_card(known.record.payload).leader)

    def _learn(self, channel: Channel, record: Record) -> None:
        if channel is Channel.MEMBERS:
            self._context.directory.learn_peer(decode_peer_card(record.payload))
        else:
            self._learn_cluster(decode_cluster_card(record.payload))

    def _learn_cluster(self, card: ClusterCard) -> None:
        context = self._context
        if context.directory.learn_cluster(card):
            self._meetings.departed.discard(card.leader)
        if card.cluster == context.cluster:
            self._claimed_elsewhere(card)

    def _displaced(self, record: Record) -> None:
        """Another peer speaks for this cluster with a newer record."""
        context, card = self._context, decode_cluster_card(record.payload)
        context.directory.learn_peer(_leader_in(card))
        self._claimed_elsewhere(card)
        if context.leading:  # of two claims of one term ours holds: the other's record must not remain the newest
            context.m.mesh.outbid(record, context.now)
            self._timetable.touch(Channel.MESH)

    def _claimed_elsewhere(self, card: ClusterCard) -> None:
        """The mesh names a leader of this cluster: the election has to hear of it."""
        context = self._context
        context.run(Channel.ELECTION, context.m.election.seen(card.term, card.leader, context.now))


def _taken(channel: Channel, record: Record) -> IdentityTaken:
    """Our own key signed a record that is not ours: in it another process says where it is."""
    if channel is Channel.MEMBERS:
        card = decode_peer_card(record.payload)
    else:
        card = _leader_in(decode_cluster_card(record.payload))
    return IdentityTaken(card.address or card.inside)


def _leader_in(card: ClusterCard) -> PeerCard:
    """The leader's own card, which is always in its cluster's."""
    return next(worker for worker in card.workers if worker.peer == card.leader)
