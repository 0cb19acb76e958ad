"""Who may say what in gossip: sealing our own records and judging others'.

A worker's record is signed by the key whose hash is its id. A cluster's record is signed by the leader that it
names, and that leader must be one of the workers it lists. Whoever holds the mesh's token is trusted to be
honest, not to be unerring: the checks stop mix-ups and stale impostors, not a traitor among the members.
"""

from __future__ import annotations

import functools

import msgspec

from ictp2p.core.cards import CLUSTERS_KEPT, KEPT, decode_cluster_card, decode_peer_card
from ictp2p.errors import RemoteProtocolError
from ictp2p.gossip.messages import Record
from ictp2p.identity import Identity, peer_id_of, verify

MEMBERS_SCOPE = "members"
MESH_SCOPE = "mesh"


class Notary:
    """Seals and judges the records of one scope."""

    def __init__(self, identity: Identity, scope: str) -> None:
        self._identity = identity
        self._scope = scope

    def seal(self, record: Record) -> Record:
        """Sign a record as this peer."""
        keyed = msgspec.structs.replace(record, key=self._identity.public_key)
        return msgspec.structs.replace(keyed, signature=self._identity.sign(record.statement(self._scope)))

    def verify(self, record: Record) -> bool:
        """Say whether a record is whole and its signer may speak for its member."""
        judge = _genuine if len(record.payload) <= KEPT else _genuine.__wrapped__
        return judge(self._scope, record)


@functools.lru_cache(CLUSTERS_KEPT)
def _genuine(scope: str, record: Record) -> bool:
    """The judgement of a record depends on nothing but the record: a copy that comes another way is not checked anew.

    The whole record is the key, its signature included, so what was changed on the way is never taken for the original.
    """
    judge = _speaks_for_peer if scope == MEMBERS_SCOPE else _speaks_for_cluster
    try:
        entitled = judge(record)
    except RemoteProtocolError:
        return False
    return entitled and verify(record.key, record.statement(scope), record.signature)


def _speaks_for_peer(record: Record) -> bool:
    card = decode_peer_card(record.payload)
    return card.peer == record.member == peer_id_of(record.key)


def _speaks_for_cluster(record: Record) -> bool:
    card = decode_cluster_card(record.payload)
    return card.cluster == record.member and card.leader == peer_id_of(record.key)
