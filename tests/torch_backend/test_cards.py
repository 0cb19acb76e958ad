"""Cards in a store that anybody may write to, and that may have seen other groups."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import msgspec
import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.edge.credential import Mesh
from ictp2p.errors import HandshakeFailed, IctError, RemoteProtocolError, RoundTimeout, VersionMismatch
from ictp2p.identity import Identity
from ictp2p.torch_backend.cards import VERSION, Card, _refused, meet
from ictp2p.torch_backend.errors import RanksMissing, SizeRefused

MESH = Mesh.from_token("a secret of sixteen letters")
OTHER = Mesh.from_token("another secret of that length")
LONG = 60.0
"""Seconds that no test waits for."""


def card(size: int = 2, **changes: object) -> Card:
    identity = Identity.generate()
    made = Card(VERSION, identity.peer_id, identity.bulk_public, "127.0.0.1", 7000, True, bytes(16), size)
    return msgspec.structs.replace(made, **changes)


def published(rank: int, size: int, mesh: Mesh | None) -> bytes:
    """What a rank of a group of some size leaves in its store."""
    store = dist.HashStore()
    with pytest.raises(RoundTimeout):
        meet(store, rank, card(size), mesh, 0.01, lambda cards: None)
    return bytes(store.get(f"ictp2p/{rank}"))


def read(other: bytes, mesh: Mesh | None) -> list[Card]:
    """What rank 0 of two makes of a card that stands in rank 1's place, if nobody says a word for it."""
    store, known = dist.HashStore(), list[list[Card]]()
    store.set("ictp2p/1", other)
    with contextlib.suppress(RoundTimeout):
        meet(store, 0, card(), mesh, 0.01, known.append)
    return known[-1]


def test_a_card_is_bound_to_its_token_group_size_and_rank() -> None:
    good = published(1, 2, MESH)
    assert len(read(good, MESH)) == 2
    forged = bytes([good[5] ^ 1])
    for bad in (published(0, 2, MESH), good[:5] + forged + good[6:], b"", b"x" * 80):
        with pytest.raises(HandshakeFailed, match="rank 1's card is not signed"):
            read(bad, MESH)
    with pytest.raises(HandshakeFailed, match="rank 1 was started as one of 3 ranks, this one as one of 2"):
        read(published(1, 3, MESH), MESH)


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (card(version=VERSION + 1), VersionMismatch),
        (card(size=3), SizeRefused),
        (card(size=0), RemoteProtocolError),
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
        meet(store, 0, mine, None, LONG, lambda cards: None)


@pytest.mark.parametrize(
    "left", [published(1, 2, OTHER), published(1, 3, MESH), published(1, 2, None), b"no card", b""]
)
def test_a_card_that_an_earlier_group_left_is_waited_out_whatever_it_is(left: bytes) -> None:
    store = dist.HashStore()
    store.set("ictp2p/1", left)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(meet, store, 0, card(), MESH, LONG, lambda cards: None)
        store.wait([_refused(left)], timedelta(seconds=LONG))
        second = pool.submit(meet, store, 1, card(), MESH, LONG, lambda cards: None)
        assert first.result() == second.result()


@pytest.mark.parametrize(
    ("mesh", "changes"), [(OTHER, {}), (None, {}), (MESH, {"sealed": False}), (MESH, {"version": VERSION + 1})]
)
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_that_are_no_group_learn_it_at_once(mesh: Mesh | None, changes: dict[str, object], size: int) -> None:
    """Not when the time is over, which is half an hour by default."""
    store = dist.HashStore()

    def come(rank: int) -> list[Card]:
        if rank == size - 1:
            return meet(store, rank, card(size, **changes), mesh, LONG, lambda cards: None)
        return meet(store, rank, card(size), MESH, LONG, lambda cards: None)

    with ThreadPoolExecutor(size) as pool:
        for each in [pool.submit(come, rank) for rank in range(size)]:
            with pytest.raises(IctError, match=r"^rank \d"):
                each.result()


@pytest.mark.parametrize("theirs", [published(1, 3, OTHER), published(1, 3, None), b"no card"])
def test_before_all_are_there_nobody_is_refused_but_for_its_size(theirs: bytes) -> None:
    """Else who refuses and leaves has no word for those who come later, and they wait until the time is over."""
    store = dist.HashStore()
    store.set("ictp2p/1", theirs)
    with pytest.raises(RanksMissing, match=r"ranks \[2\] of 3"):
        meet(store, 0, card(3), MESH, 0.01, lambda cards: None)
    assert not store.check([_refused(theirs)])


def test_a_card_of_an_earlier_version_is_named_as_such() -> None:
    with pytest.raises(VersionMismatch, match=f"rank 1 has cards of version 1, this one of {VERSION}"):
        read(msgspec.msgpack.encode((1, "fields that this version does not know")), None)


@pytest.mark.parametrize("mesh", [None, MESH])
@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2), (2, 5), (5, 4)])
def test_ranks_that_were_told_different_numbers_of_ranks_learn_it_at_once(
    first: int, second: int, mesh: Mesh | None
) -> None:
    """Regression: they waited for ranks that do not exist until the time was over, or heard of a wrong token."""
    store = dist.HashStore()

    def come(rank: int, size: int) -> list[Card]:
        return meet(store, rank, card(size), mesh, LONG, lambda cards: None)

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(come, 0, first), pool.submit(come, 1, second)]
        for each, words in zip(found, [(1, second, first), (0, first, second)], strict=True):
            with pytest.raises(SizeRefused) as caught:
                each.result()
            rank, theirs, ours = words
            assert str(caught.value) == (f"rank {rank} was started as one of {theirs} ranks, this one as one of {ours}")


def test_who_comes_first_meets_nobody_of_a_group_that_has_ended() -> None:
    store = dist.HashStore()
    with ThreadPoolExecutor(2) as pool:
        earlier = [pool.submit(meet, store, rank, card(), None, LONG, lambda cards: None) for rank in range(2)]
    assert earlier[0].result() == earlier[1].result()
    with pytest.raises(RanksMissing, match=r"ranks \[1\] of 2"):
        meet(store, 0, card(), None, 0.01, lambda cards: None)


@pytest.mark.parametrize("read", [True, False])
def test_whose_store_goes_once_it_has_said_that_it_met_all_has_met_them(read: bool) -> None:
    """Regression: the rank that holds the store left at once, and another's `init_process_group` failed for that."""

    class Leaving:
        def __init__(self) -> None:
            self._store = dist.HashStore()
            self.set, self.get = self._store.set, self._store.get

        def check(self, keys: list[str]) -> bool:
            if ("/ready/" in keys[0]) == read:
                raise dist.DistNetworkError("gone")
            return bool(self._store.check(keys))

    store = Leaving()
    others, ours = published(0, 2, None), card()
    store.set("ictp2p/0", others)
    if read:
        assert meet(store, 1, ours, None, LONG, lambda cards: None)[1] == ours
    else:
        with pytest.raises(dist.DistNetworkError):
            meet(store, 1, ours, None, LONG, lambda cards: None)


@given(size=st.integers(1, 4), left=st.lists(st.sets(st.integers(0, 3)), max_size=3))
@settings(max_examples=15, deadline=None)
def test_ranks_meet_by_their_present_cards_whatever_earlier_groups_left(size: int, left: list[set[int]]) -> None:
    """Of each earlier group some ranks came as far as to publish their cards, all of them to the end, or none."""
    store = dist.HashStore()

    def come(rank: int, mine: Card, known: list[list[Card]], timeout: float) -> list[Card]:
        return meet(store, rank, mine, None, timeout, known.append)

    for came in [*left, set(range(4))]:
        ranks = sorted(came & set(range(size)))
        mine, known = [card(size) for _ in ranks], [list[list[Card]]() for _ in ranks]
        complete = len(ranks) == size
        with ThreadPoolExecutor(size) as pool:
            found = [
                pool.submit(come, *each, 20.0 if complete else 0.05) for each in zip(ranks, mine, known, strict=True)
            ]
        for each, told in zip(found, known, strict=True):
            if complete:
                assert each.result() == told[-1] == mine
            else:
                with pytest.raises(RoundTimeout, match="did not come"):
                    each.result()
