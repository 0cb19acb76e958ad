"""Packets and channels: how one connection carries every machine, and how a packet finds its target.

Between two peers there is one control connection; a `Packet` on it names the channel (which machine it is for),
where it comes from and where it goes. A peer that is not the target passes it on: a follower to its leader, a
leader along Babel's next hop. `hops` ends a packet that would circle while routes are still moving.

Some channels are never passed on. Hellos and route updates speak about one connection, so a relayed one would
be a lie; greetings introduce the two ends of a connection.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from ictp2p.core.cards import PeerCard
from ictp2p.errors import RemoteProtocolError
from ictp2p.gossip.election import Term
from ictp2p.machine import Message
from ictp2p.types import ClusterOrNone, PeerName, PeerOrNone
from ictp2p.wire import MALFORMED

MAX_HOPS = 16
"""Far more than a path needs: worker, leader, relays, leader, worker, and the overlay is a few hops wide."""


STATUS_PART = 512 * 1024
"""Bytes of a status in one packet: that of hundreds of clusters is longer than a frame."""

STATUS_LIMIT = 16 * STATUS_PART
"""Most bytes of a status: what may wait on a connection for its reader, and what a peer can spare the time to write
down. Of 256 clusters with 31 links each it takes 1.3 MB."""

INTRODUCED = 512
"""Most cards in one introduction: of a cluster of thousands there are several."""


class Channel(enum.IntEnum):
    """Which machine a packet is for. Append only: these numbers are on the wire."""

    HELLO = 0
    MEMBERS = 1
    MESH = 2
    LINKS = 3
    ROUTES = 4
    ELECTION = 5
    ROSTER = 6
    ROUNDS = 7
    BULK = 8


ONE_HOP = frozenset({Channel.HELLO, Channel.LINKS, Channel.ROUTES})
"""Channels that speak about the very connection they travel on."""

BETWEEN_CLUSTERS = frozenset({Channel.MESH, Channel.LINKS, Channel.ROUTES})
"""Channels whose machine addresses clusters; the packet goes to the cluster's leader."""


class Packet(msgspec.Struct, frozen=True, array_like=True):
    """One message of one machine, on its way."""

    source: PeerName
    cluster: ClusterOrNone
    """The source's cluster; empty for an observer."""
    target: PeerName
    hops: int
    channel: Channel
    body: bytes


class Greeting(Message, tag=1, frozen=True, array_like=True):
    """First on every connection, both ways: who I am, and who leads my cluster as far as I know."""

    card: PeerCard
    leader: PeerOrNone
    """Empty while there is none."""
    term: Term


class Introduction(Message, tag=2, frozen=True, array_like=True):
    """Cards that the receiver should know: workers of its own cluster that greeted the same peer."""

    cards: Annotated[tuple[PeerCard, ...], msgspec.Meta(max_length=INTRODUCED)]


class MeshCopy(Message, tag=3, frozen=True, array_like=True):
    """The mesh view, from a leader to a follower, or from anybody to a newcomer."""

    state: bytes
    """The gossip room's own `SwimState`, encoded."""
    cluster: bytes
    """The `ClusterCard` of the sender's cluster, encoded: its own where it leads, else as its leader last told it. A
    passive view does not hold its own cluster."""
    more: bool = False
    """Whether this is a part of the view, and another follows: a frame has a limit."""


class Goodbye(Message, tag=4, frozen=True, array_like=True):
    """The sender leaves on purpose: what follows on this connection is its end, not a failure."""


class StatusRequest(Message, tag=5, frozen=True, array_like=True):
    """An observer asks for this peer's status."""


class StatusReply(Message, tag=6, frozen=True, array_like=True):
    """The status, as a JSON document in parts."""

    document: bytes
    more: bool
    """Whether another part follows."""


class StatusRefusal(Message, tag=9, frozen=True, array_like=True):
    """Why an observer is not told the status; the connection is closed after it."""

    reason: str


class Need(Message, tag=7, frozen=True, array_like=True):
    """Whether the sender has a use for this connection. Before anything is said, it has."""

    wanted: bool


class Parting(Message, tag=8, frozen=True, array_like=True):
    """Neither side has a use for this connection: please close it. Its end is no failure, and no goodbye either."""


class BulkInvitation(Message, tag=1, frozen=True, array_like=True):
    """Dial a bulk connection to me: I cannot dial you. `ticket` tells me which of my waits it answers."""

    ticket: bytes


_packet_decoder = msgspec.msgpack.Decoder(Packet)
_encoder = msgspec.msgpack.Encoder()


def encode_packet(packet: Packet) -> bytes:
    """The body of a control frame."""
    return _encoder.encode(packet)


def decode_packet(body: bytes) -> Packet:
    """Read the body of a control frame.

    Raises:
        RemoteProtocolError: it is not a packet, or names a channel that this version does not know.
    """
    try:
        return _packet_decoder.decode(body)
    except MALFORMED as error:
        raise RemoteProtocolError(f"malformed packet of {len(body)} bytes: {error}") from error
