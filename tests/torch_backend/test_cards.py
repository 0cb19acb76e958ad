"""Cards in a store that anybody may write to."""

from __future__ import annotations

import msgspec
import pytest
import torch.distributed as dist

from ictp2p.credential import Mesh
from ictp2p.errors import HandshakeFailed, IctError, RemoteProtocolError, VersionMismatch
from ictp2p.identity import Identity
from ictp2p.torch_backend.cards import VERSION, Card, exchange

MESH = Mesh.from_token("a secret of sixteen letters")


def card(**changes: object) -> Card:
    identity = Identity.generate()
    made = Card(VERSION, identity.peer_id, identity.bulk_public, "127.0.0.1", 7000, True, bytes(16))
    return msgspec.structs.replace(made, **changes)


def published(rank: int, size: int, mesh: Mesh | None) -> bytes:
    """What a rank of a group of some size leaves in its store."""
    store = dist.HashStore()
    for other in set(range(size)) - {rank}:
        store.set(f"ictp2p/{other}", "")
    with pytest.raises(IctError):
        exchange(store, rank, size, card(), mesh, 1.0)
    return bytes(store.get(f"ictp2p/{rank}"))


def read(other: bytes, mesh: Mesh | None) -> list[Card]:
    """What rank 0 of two makes of a card that stands in rank 1's place."""
    store = dist.HashStore()
    store.set("ictp2p/1", other)
    return exchange(store, 0, 2, card(), mesh, 1.0)


def test_a_card_is_bound_to_its_token_group_size_and_rank() -> None:
    good = published(1, 2, MESH)
    assert len(read(good, MESH)) == 2
    forged = bytes([good[5] ^ 1])
    for bad in (published(0, 2, MESH), published(1, 3, MESH), good[:5] + forged + good[6:], b"", b"x" * 80):
        with pytest.raises(HandshakeFailed, match="rank 1's card is not signed"):
            read(bad, MESH)


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (card(version=2), VersionMismatch),
        (card(peer="nobody"), RemoteProtocolError),
        (card(key=b"short"), RemoteProtocolError),
        (card(port=0), RemoteProtocolError),
        (card(sealed=False), HandshakeFailed),
    ],
)
def test_cards_that_cannot_be_are_refused(other: Card, error: type[IctError]) -> None:
    with pytest.raises(error):
        read(msgspec.msgpack.encode(other), None)


def test_two_ranks_with_one_identity_are_no_group() -> None:
    mine, store = card(), dist.HashStore()
    store.set("ictp2p/1", msgspec.msgpack.encode(mine))
    with pytest.raises(RemoteProtocolError, match="one identity"):
        exchange(store, 0, 2, mine, None, 1.0)
