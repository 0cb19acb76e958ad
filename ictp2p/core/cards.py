"""What a peer and a cluster say about themselves; gossip carries these as signed payloads.

A `PeerCard` is the payload of a worker's record in its cluster's gossip. A `ClusterCard` is the payload of a
cluster's record in the mesh: its leader speaks for it, and it carries every worker's card, so that each peer of
the mesh can name, reach and agree keys with every other without asking anybody.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, TypeVar

import msgspec

from ictp2p.errors import RemoteProtocolError
from ictp2p.gossip.election import Term
from ictp2p.sync.rosters.devices import HOST, Device
from ictp2p.types import Address, ClusterName, ClusterOrNone, PeerId, PeerName
from ictp2p.wire import MALFORMED


class PeerCard(msgspec.Struct, frozen=True, array_like=True):
    """One worker: where it listens and what it is able to do."""

    peer: PeerName
    cluster: ClusterOrNone
    """Empty for an observer, who sees the mesh and takes no part in it."""
    address: str
    """`host:port` that others may dial; empty for a peer that only dials out (behind a NAT)."""
    bulk_public: bytes
    """X25519 public key of this process, from which bulk connections derive their keys."""
    durable: bool = True
    """Whether its promises survive a crash. One whose do not may vote too, since its id dies with its memory, but a
    mesh that stops whole can only be started again by those with a disk: they are preferred."""
    device: Device = HOST
    """What its training thread computes on, which decides the collective library inside the cluster."""
    rank: int = 0
    """Order of preference for leadership; the lowest wins, then the lowest id."""
    inside: str = ""
    """`host:port` where the workers of its cluster may dial a peer that has no address for others."""

    def endpoint(self, *, mate: bool = False) -> Address | None:
        """Where anybody, or a `mate` of its cluster, dials this worker; None if it only dials out."""
        where = self.address or (self.inside if mate else "")
        return _parsed(where) if where else None


class LinkCard(msgspec.Struct, frozen=True, array_like=True):
    """One direction-pair of a direct link as its owner measures it. Bandwidths are bytes/s, 0 if unknown."""

    neighbour: ClusterName
    bandwidth_out: float
    bandwidth_in: float
    round_trip: float
    """Seconds of the least one of late: what others take is queues, most of them those of our own rounds."""
    loss: float
    """Fraction of hellos that went unanswered, 0..1."""
    at_least_out: float = 0.0
    """What it carried while something else was the limit; of use where the bandwidth is unknown."""
    at_least_in: float = 0.0


class Limits(NamedTuple):
    """What plans may ask of a peer that leads its cluster."""

    up: float = 0.0
    """Bytes/s that it may send in all; 0: not limited."""
    room: int = 0
    """Bytes of others' contributions that it keeps at most; 0: what plans take without asking."""


FREE = Limits()
"""Nothing said."""


class ClusterCard(msgspec.Struct, frozen=True, array_like=True):
    """One cluster, as its leader of `term` describes it."""

    cluster: ClusterName
    leader: PeerName
    term: Term
    workers: tuple[PeerCard, ...]
    """The leader first, then the others by id."""
    training: bool = False
    """Whether rounds wait for it: it holds the current state and takes steps."""
    version: int = 0
    """Version of the committed global state that it holds."""
    links: tuple[LinkCard, ...] = ()
    up: float = 0.0
    """Bytes/s that its leader may send in all, where that is limited; 0 if it is not, or not known."""
    room: int = 0
    """Bytes of others' contributions that its leader keeps at most; 0: what plans take without asking."""
    behind: float = 0.0
    """Seconds that its leader needs to fetch the state, where a newer one was agreed on in the meantime; else 0."""
    lineage: bytes = b""
    """Of which founding of a mesh its chain is; empty while it has none."""

    def worker(self, peer: PeerId) -> PeerCard | None:
        """The card of one of its workers."""
        return next((w for w in self.workers if w.peer == peer), None)


_peer_decoder = msgspec.msgpack.Decoder(PeerCard)
_cluster_decoder = msgspec.msgpack.Decoder(ClusterCard)
MAX_WORKERS = 4096
"""Of one cluster."""
_LONGEST_ADDRESS = 320
"""Characters: a host name has 253 at most, and an IPv6 address may name an interface."""
_MAX_ROOM = 2**40
_LONGEST_COUNT = 5
"""Bytes of the longest head of a list."""
KEPT = 16 * 1024
"""Longest payload that is kept as read, bytes: of clusters of hundreds of workers, thousands of cards would be hundreds
of megabytes."""
CLUSTERS_KEPT = 512
"""Cards of clusters that are kept as read, and what is made of each: the same few are asked for again and again, and
cards are immutable. Each commit and each change of a link makes a new one, so a peer grows until it has so many: they
are six times their payload, and 2048 of clusters of 32 workers were 85 MB."""
_WORKERS_KEPT = 2048
"""Cards of workers, and addresses."""

_Card = TypeVar("_Card", PeerCard, ClusterCard)


def encode_card(card: PeerCard | ClusterCard) -> bytes:
    """The payload bytes that gossip signs."""
    return msgspec.msgpack.encode(card)


def fitted(card: ClusterCard, size: int) -> ClusterCard:
    """A card with as many of its workers as fit into `size` bytes, encoded.

    Its leader is always among them; then come those whose promises survive a crash, since they are to vote.
    """
    if len(encode_card(card)) <= size:
        return card
    leader = card.worker(card.leader)
    ordered = sorted((w for w in card.workers if w is not leader), key=lambda worker: not worker.durable)
    room = size - len(encode_card(msgspec.structs.replace(card, workers=()))) - _LONGEST_COUNT
    listed = {card.leader}
    room -= 0 if leader is None else len(encode_card(leader))
    for worker in ordered:
        room -= len(encode_card(worker))
        if room < 0:
            break
        listed.add(worker.peer)
    return msgspec.structs.replace(card, workers=tuple(w for w in card.workers if w.peer in listed))


@functools.lru_cache(_WORKERS_KEPT)
def decode_peer_card(payload: bytes) -> PeerCard:
    """Read a worker's payload.

    Raises:
        RemoteProtocolError: it is not a card, or names an address that cannot be.
    """
    return checked_peer(_decode(_peer_decoder, payload))


def decode_cluster_card(payload: bytes) -> ClusterCard:
    """Read a cluster's payload.

    Raises:
        RemoteProtocolError: it is not a card, its leader is none of its workers, one of these stands there twice or is
            another cluster's, or a figure is not finite.
    """
    return _read_cluster(payload) if len(payload) <= KEPT else _read_cluster.__wrapped__(payload)


@functools.lru_cache(CLUSTERS_KEPT)
def _read_cluster(payload: bytes) -> ClusterCard:
    card = _decode(_cluster_decoder, payload)
    if len(card.workers) > MAX_WORKERS or card.worker(card.leader) is None:
        raise RemoteProtocolError(f"cluster card of {card.cluster!r} does not list its leader {card.leader!r}")
    for worker in card.workers:
        checked_peer(worker)
        if worker.cluster != card.cluster:
            raise RemoteProtocolError(f"cluster card of {card.cluster!r} lists {worker.peer}, of {worker.cluster!r}")
    if len({worker.peer for worker in card.workers}) < len(card.workers):
        raise RemoteProtocolError(f"cluster card of {card.cluster!r} lists a worker twice")
    if not (math.isfinite(card.up) and card.up >= 0):
        raise RemoteProtocolError(f"cluster card of {card.cluster!r} has an impossible limit of {card.up!r} bytes/s")
    if not 0 <= card.room <= _MAX_ROOM:
        raise RemoteProtocolError(f"cluster card of {card.cluster!r} has an impossible room of {card.room!r} bytes")
    if not (math.isfinite(card.behind) and card.behind >= 0):
        raise RemoteProtocolError(f"cluster card of {card.cluster!r} is behind by an impossible {card.behind!r} s")
    for link in card.links:
        bounds = (link.at_least_out, link.at_least_in)
        figures = (link.bandwidth_out, link.bandwidth_in, link.round_trip, link.loss, *bounds)
        if not all(math.isfinite(x) and x >= 0 for x in figures):
            raise RemoteProtocolError(f"cluster card of {card.cluster!r} has an impossible link {link!r}")
    return card


def _decode(decoder: msgspec.msgpack.Decoder[_Card], payload: bytes) -> _Card:
    try:
        return decoder.decode(payload)
    except MALFORMED as error:
        raise RemoteProtocolError(f"malformed card: {error}") from error


_parsed = functools.lru_cache(_WORKERS_KEPT)(Address.parse)


def checked_peer(card: PeerCard) -> PeerCard:
    """Give the card back.

    Raises:
        RemoteProtocolError: its key has another length, or an address of it cannot be one, for its length perhaps.
    """
    if len(card.bulk_public) != 32:
        raise RemoteProtocolError(f"card of {card.peer!r} has a bulk key of {len(card.bulk_public)} bytes, not 32")
    for address in filter(None, (card.address, card.inside)):
        if len(address) > _LONGEST_ADDRESS:
            raise RemoteProtocolError(f"card of {card.peer!r} has an address of {len(address)} characters")
        try:
            _parsed(address)
        except ValueError as error:
            raise RemoteProtocolError(f"card of {card.peer!r}: {error}") from error
    return card
