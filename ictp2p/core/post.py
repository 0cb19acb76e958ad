"""Packets on their way: addressed to a peer, or to whoever leads a cluster, and handed to the next connected peer.

A packet to another cluster follows the routes of its leaders; inside a cluster everybody reaches everybody, or asks
the leader to pass it on. Where there is no way a packet is lost: every machine repeats what matters to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from ictp2p.core.commands import Transmit
from ictp2p.core.context import Context
from ictp2p.core.machines import CODECS
from ictp2p.core.neighbourhood import Neighbourhood
from ictp2p.core.packets import BETWEEN_CLUSTERS, MAX_HOPS, ONE_HOP, Channel, Packet, encode_packet
from ictp2p.errors import RemoteProtocolError
from ictp2p.machine import Message
from ictp2p.types import ClusterId, PeerId


class Post:
    """What one peer sends and passes on.

    Args:
        context: the stack's.
        neighbourhood: the leaders next door.
    """

    def __init__(self, context: Context, neighbourhood: Neighbourhood) -> None:
        self.open: set[PeerId] = set()
        """Peers with an open connection."""
        self.inbox: deque[tuple[PeerId, Packet]] = deque()
        """What arrived for this peer, and from whom, its own packets to itself among it, and was not delivered yet."""
        self._context = context
        self._neighbourhood = neighbourhood
        self._encoded: tuple[Message | None, bytes] = (None, b"")

    def send(self, channel: Channel, to: str, message: Message) -> None:
        """Send a message of the machine on `channel` to a peer, or to the leader of a cluster."""
        target = self._target(channel, to)
        if target is None:
            return
        if message is not self._encoded[0]:  # what goes to many is encoded once
            self._encoded = (message, CODECS[channel].encode(message))
        packet = Packet(self._context.me, self._context.cluster, target, MAX_HOPS, channel, self._encoded[1])
        if target == self._context.me:
            self.inbox.append((target, packet))
        else:
            self._pass_on(packet)

    def take(self, bearer: PeerId, packet: Packet) -> None:
        """A packet came over the connection to `bearer`: keep it for delivery, or pass on what is another's.

        Raises:
            RemoteProtocolError: it was passed on, and is on a channel that nothing is passed on of.
        """
        if packet.target != self._context.me:
            self._forward(packet)
        elif packet.channel in ONE_HOP and packet.source != bearer:
            raise RemoteProtocolError(f"{bearer} relayed a {packet.channel.name} packet of {packet.source}")
        else:
            self.inbox.append((bearer, packet))

    def next_hop(self, target: PeerId) -> PeerId | None:
        """The connected peer to which a packet for `target` goes, or None if there is no way.

        A leader next door gets it directly, unless its link has fallen silent: a connection whose line is cut stands
        until TCP gives it up, and swallows all that it is given.
        """
        if target in self.open and target not in self._neighbourhood.lost():
            return target
        return self._way(target, self._context.m.routes.next_hop)

    def relay(self, target: PeerId, size: int) -> PeerId | None:
        """The connected peer through which `size` bytes for `target` arrive first, or None if there is no way.

        Of those who lead to it, every next one is asked anew for its best way; what that takes still shrinks at each.
        """

        def towards(cluster: ClusterId) -> str | None:
            route = self._context.m.routes.best(cluster, size)
            return None if route is None else route.next_hop

        return self._way(target, towards)

    def _forward(self, packet: Packet) -> None:
        hops = min(packet.hops, MAX_HOPS)  # the wire's word for it: while leaders change, two may pass on to each other
        if hops > 1 and packet.channel not in ONE_HOP:
            self._pass_on(msgspec.structs.replace(packet, hops=hops - 1))

    def _way(self, target: PeerId, towards: Callable[[ClusterId], str | None]) -> PeerId | None:
        """Within a cluster everything goes through its leader; a leader asks in which neighbour's direction."""
        context = self._context
        cluster = context.directory.cluster_of(target)
        if cluster is None:
            return None
        if not context.leading or cluster == context.cluster:
            hop = context.leader if context.leader != context.me else None
        else:
            hop = self._neighbourhood.leader(ClusterId(towards(cluster) or cluster))
        return hop if hop in self.open else None

    def _target(self, channel: Channel, to: str) -> PeerId | None:
        if channel not in BETWEEN_CLUSTERS:
            return PeerId(to)
        cluster = ClusterId(to)
        return self._neighbourhood.leader(cluster) if channel in ONE_HOP else self._context.directory.leader_of(cluster)

    def _pass_on(self, packet: Packet) -> None:
        hop = packet.target if packet.channel in ONE_HOP else self.next_hop(packet.target)
        if hop in self.open:
            self._context.out.append(Transmit(hop, encode_packet(packet)))
