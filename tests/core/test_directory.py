"""Who is remembered, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ictp2p.core.cards import ClusterCard, PeerCard
from ictp2p.core.directory import Directory
from ictp2p.runtime.entrance import address_book
from ictp2p.types import Address, ClusterId, PeerId

AFTER = 100.0


def card(number: int, cluster: str = "a", address: str = "") -> PeerCard:
    return PeerCard(PeerId(f"p{number:03d}"), ClusterId(cluster), address, bytes(32))


@given(
    st.lists(st.tuples(st.frozensets(st.integers(1, 5)), st.floats(0.0, 150.0)), min_size=1, max_size=12),
    st.frozensets(st.integers(1, 5)),
)
def test_exactly_those_are_forgotten_whom_nobody_named_for_long_enough(
    looks: list[tuple[frozenset[int], float]], listed: frozenset[int]
) -> None:
    """Whoever is listed by a cluster or leads one is named; a moment of being here starts the time anew."""
    directory = Directory(card(0))
    cards = {n: card(n, "b") for n in range(1, 6)}
    for each in cards.values():
        directory.learn_peer(each)
    workers = tuple(cards[n] for n in sorted(listed))
    if workers:
        directory.learn_cluster(ClusterCard(ClusterId("b"), workers[0].peer, 1, workers))
    now, kept = 0.0, set(cards)
    unnamed: dict[int, float | None] = dict.fromkeys(cards)
    for here, pause in looks:
        now += pause
        directory.forget({cards[n].peer for n in here}, now, AFTER, len(cards))
        for n in sorted(kept):
            since = unnamed[n]
            unnamed[n] = None if n in here | listed else now if since is None else since
            if since is not None and unnamed[n] is not None and now - since >= AFTER:
                kept.discard(n)
        assert directory.peers.keys() == {cards[n].peer for n in kept} | {directory.me.peer}


@given(st.lists(st.booleans(), max_size=8), st.integers(0, 8), st.frozensets(st.integers(1, 8)))
def test_of_too_many_former_workers_those_are_kept_who_may_be_back_and_were_named_last(
    durable: list[bool], most: int, here: frozenset[int]
) -> None:
    directory = Directory(card(0))
    cards = {n: structs.replace(card(n), durable=disk) for n, disk in enumerate(durable, 1)}
    for now, each in enumerate(cards.values()):
        directory.learn_peer(each)
        directory.forget({card(n).peer for n in here}, float(now), AFTER, len(cards))
    directory.forget({card(n).peer for n in here}, float(len(cards)), AFTER, most)
    former = sorted((disk, n) for n, disk in enumerate(durable, 1) if n not in here)
    kept = {n for _, n in former[len(former) - min(most, len(former)) :]}
    assert directory.peers.keys() == {card(n).peer for n in (0, *kept, *(here & cards.keys()))}


def test_after_a_false_death_the_higher_claim_holds_as_before() -> None:
    """Regression: whoever still believed in the leader of before made others believe in that one again."""
    directory, cluster = Directory(card(0)), ClusterId("b")
    leader, former = card(1, "b"), card(2, "b")
    standing = ClusterCard(cluster, leader.peer, 5, (leader, former))
    directory.learn_cluster(standing)
    directory.lapse(cluster)
    directory.learn_cluster(standing)  # it refuted
    directory.learn_claim(cluster, 4, former.peer)
    assert directory.leader_of(cluster) == leader.peer
    directory.lapse(cluster)
    directory.learn_claim(cluster, 1, former.peer)
    assert directory.leader_of(cluster) == former.peer, "whoever is back begins at a lower term"


def test_only_mates_are_dialed_where_they_can_be_dialed_from_inside() -> None:
    directory = Directory(card(0))
    for number, cluster in ((1, "a"), (2, "b")):
        directory.learn_peer(structs.replace(card(number, cluster), inside="10.0.0.5:7000"))
    assert directory.endpoint(PeerId("p001")) == Address("10.0.0.5", 7000)
    assert directory.endpoint(PeerId("p002")) is None
    assert directory.endpoint(PeerId("p003")) is None


def test_only_mates_reach_a_hidden_worker_and_nobody_one_that_knows_no_address_of_its_own() -> None:
    mate, other = card(1), card(2, "b")
    for own, inside, outside in ((card(0), None, None), (card(0, address="x:1"), "x:1", "x:1")):
        directory = Directory(own)
        for each in (mate, other):
            directory.learn_peer(each)
        assert directory.reached_at(mate.peer) == (inside and Address.parse(inside))
        assert directory.reached_at(other.peer) == (outside and Address.parse(outside))
    directory = Directory(structs.replace(card(0), inside="y:2"))
    for each in (mate, other):
        directory.learn_peer(each)
    assert directory.reached_at(mate.peer) == Address("y", 2)
    assert directory.reached_at(other.peer) is None
    assert directory.reached_at(PeerId("never heard of")) is None


def test_a_cluster_of_which_only_the_leader_is_known_is_forgotten_too_and_takes_no_place_of_another() -> None:
    """Regression: who greeted us and died before its card came, or after its cluster had left, stayed for good."""
    directory = Directory(card(0))
    directory.learn_cluster(ClusterCard(ClusterId("b"), card(1, "b").peer, 1, (card(1, "b"),)))
    for number in range(2, 6):
        job = card(number, f"job{number}")
        directory.learn_peer(job)
        directory.learn_claim(job.cluster, 1, job.peer)
    directory.forget_clusters((), 0.0, AFTER, 1)
    directory.forget_clusters((), AFTER - 1.0, AFTER, 1)
    assert directory.leader_of(ClusterId("job2")) == card(2).peer
    directory.forget_clusters((), AFTER, AFTER, 1)
    for moment in (AFTER, 2 * AFTER):
        directory.forget((), moment, AFTER, 1)
    assert directory.peers.keys() == {card(0).peer, card(1).peer}
    assert directory._claims.keys() == directory.clusters.keys() == {"b"}


def test_forgetting_is_a_change_that_others_act_upon() -> None:
    directory = Directory(card(0))
    directory.learn_peer(card(1))
    directory.forget((), 0.0, AFTER, 1)
    revision = directory.revision
    directory.forget((), AFTER - 1.0, AFTER, 1)
    assert directory.revision == revision
    directory.forget((), AFTER, AFTER, 1)
    assert directory.revision > revision
    assert not directory.mates()


@given(st.integers(1, 600), st.integers(0, 255), st.integers(0, 300))
def test_an_address_book_has_room_for_the_living_before_all_others(dead: int, living: int, former: int) -> None:
    """The dead have the lower ids here: where the first so many by id were kept, they kept the living out."""
    others = {PeerId(f"p{n:03d}"): Address("dead" if n < dead else "living", n + 1) for n in range(dead + living)}
    here = [*others][dead:]
    old = [Address("former", n + 1) for n in range(former)]
    book = address_book({**others, PeerId("q"): None}, here, old)
    assert {others[peer] for peer in here} <= set(book)
    assert len(book) == len(set(book)) == min(256, dead + living + former)
    if dead + living <= 256:
        assert book[: dead + living] == tuple(others.values())
