"""What arrived for this peer goes to the machine that it is for.

The sender of a packet may be wrong, or be of another mind about who leads; neither must harm anybody else. So a
malformed packet costs at most the connection of whom it is proven to come from, and what is said between clusters
counts only among their leaders. Where a machine of ours goes wrong over a packet, that is no fault of its sender. Of
what one peer brings little is told: each is a line in a log, and a release that differs, or a relay of many, could
bring thousands a second.
"""

from __future__ import annotations

from ictp2p.core.commands import BulkInvited, Hangup, Violated
from ictp2p.core.context import Context
from ictp2p.core.machines import CODECS
from ictp2p.core.meetings import Meetings
from ictp2p.core.neighbourhood import Neighbourhood
from ictp2p.core.packets import BETWEEN_CLUSTERS, ONE_HOP, BulkInvitation, Channel, Packet
from ictp2p.core.post import Post
from ictp2p.core.timetable import Timetable
from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.machine import Message
from ictp2p.types import PeerId

_TOLD_AGAIN = 60.0
"""Seconds from one malformed packet of a bearer that is told to the next: the others would hardly say anything new."""


class Delivery:
    """The way from one peer's inbox to its machines.

    Args:
        context: the stack's.
        timetable: is told of every machine that gets a message.
        post: the inbox.
        meetings: take what is said on the hello channel.
        neighbourhood: the leaders next door.
    """

    def __init__(
        self, context: Context, timetable: Timetable, post: Post, meetings: Meetings, neighbourhood: Neighbourhood
    ) -> None:
        self._context = context
        self._timetable = timetable
        self._post = post
        self._meetings = meetings
        self._neighbourhood = neighbourhood
        self._told: dict[PeerId, float] = {}
        """Of whom a malformed packet was told, and until when no other is."""

    def empty_inbox(self) -> None:
        """Deliver all that has arrived, and what this peer sends to itself because of it."""
        inbox = self._post.inbox
        while inbox:
            self._deliver_guarded(*inbox.popleft())

    def _deliver_guarded(self, bearer: PeerId, packet: Packet) -> None:
        """What one sender got wrong must not keep this peer from serving the others.

        Nor may it cost another its connection: of a packet that was passed on the source is not proven.
        """
        try:
            self._deliver(packet)
        except LocalProtocolError as error:
            me = self._context.me
            self._tell(Violated(me, me, f"over a {packet.channel.name} packet of {packet.source}: {error}"))
        except RemoteProtocolError as error:
            self._tell(Violated(bearer, packet.source, f"{packet.channel.name}: {error}"))
            if bearer == packet.source and bearer in self._post.open:
                self._context.out.append(Hangup(bearer))

    def _tell(self, violated: Violated) -> None:
        now = self._context.now
        self._told = {bearer: until for bearer, until in self._told.items() if now < until}
        if violated.bearer not in self._told:
            self._told[violated.bearer] = now + _TOLD_AGAIN
            self._context.out.append(violated)

    def _deliver(self, packet: Packet) -> None:
        context, channel = self._context, packet.channel
        self._timetable.touch(channel)  # here already: a machine may refuse the second half of a message
        message = CODECS[channel].decode(packet.body)
        if channel is Channel.HELLO:
            self._meetings.receive(packet.source, message)
        elif isinstance(message, BulkInvitation):
            context.out.append(BulkInvited(packet.source, message.ticket))
        elif channel in BETWEEN_CLUSTERS:
            self._deliver_between_clusters(channel, packet, message)
        else:
            machine = context.m.by_channel[channel]
            context.run(channel, machine.receive(packet.source, message, context.now))

    def _deliver_between_clusters(self, channel: Channel, packet: Packet, message: Message) -> None:
        """Only a leader speaks for its cluster, and only to a leader."""
        context = self._context
        from_neighbour = self._neighbourhood.leader(packet.cluster) == packet.source
        if context.leading and (from_neighbour or channel not in ONE_HOP):
            machine = context.m.by_channel[channel]
            context.run(channel, machine.receive(packet.cluster, message, context.now))
