"""Cards: what gossip carries survives the trip, and what cannot be is refused."""

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from ictp2p.core.cards import (
    ClusterCard,
    LinkCard,
    PeerCard,
    decode_cluster_card,
    decode_peer_card,
    encode_card,
    fitted,
)
from ictp2p.core.directory import Directory
from ictp2p.errors import RemoteProtocolError
from ictp2p.gossip.messages import MAX_PAYLOAD
from ictp2p.types import Address, ClusterId, PeerId


def worker(name: str, cluster: str = "zurich", address: str = "127.0.0.1:7000") -> PeerCard:
    return PeerCard(PeerId(f"{int(name, 36):032x}"), ClusterId(cluster), address, bytes(32))


def card(*workers: PeerCard, links: tuple[LinkCard, ...] = ()) -> ClusterCard:
    return ClusterCard(ClusterId("zurich"), workers[0].peer, 3, workers, links=links)


def test_cards_survive_the_trip() -> None:
    whole = card(worker("a"), worker("b"), links=(LinkCard(ClusterId("tokyo"), 1e6, 2e6, 0.1, 0.0),))
    assert decode_cluster_card(encode_card(whole)) == whole
    assert decode_peer_card(encode_card(worker("a"))) == worker("a")
    assert worker("a").endpoint() == Address("127.0.0.1", 7000)
    assert worker("a", address="").endpoint() is None


def test_who_only_dials_out_can_be_dialed_by_its_mates_alone() -> None:
    hidden = structs.replace(worker("a", address=""), inside="10.0.0.5:7000")
    assert decode_peer_card(encode_card(hidden)) == hidden
    assert hidden.endpoint() is None
    assert hidden.endpoint(mate=True) == Address("10.0.0.5", 7000)
    assert structs.replace(hidden, address="192.0.2.1:1").endpoint(mate=True) == Address("192.0.2.1", 1)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (ClusterCard(ClusterId("zurich"), PeerId("f" * 32), 1, (worker("a"),)), f"'{'f' * 32}'"),
        (card(structs.replace(worker("a"), bulk_public=b"short")), "5 bytes"),
        (card(worker("a", address="nowhere")), "'nowhere'"),
        (card(structs.replace(worker("a"), inside="nowhere")), "'nowhere'"),
        (card(worker("a"), links=(LinkCard(ClusterId("t"), math.nan, 0, 0, 0),)), "nan"),
        (card(worker("a"), links=(LinkCard(ClusterId("t"), -1.0, 0, 0, 0),)), "-1.0"),
        (card(worker("a"), links=(LinkCard(ClusterId("t"), 0, 0, 0, 0, math.inf),)), "inf"),
        (structs.replace(card(worker("a")), term=2**30), "<= 1073741823"),
        (structs.replace(card(worker("a")), term=-1), ">= 0"),
        (structs.replace(card(worker("a")), room=-1), "room of -1 bytes"),
        (structs.replace(card(worker("a")), behind=-1.0), "behind by an impossible -1.0 s"),
        (structs.replace(card(worker("a")), behind=math.inf), "behind by an impossible inf s"),
        (structs.replace(card(worker("a")), room=2**41), "room of 2199023255552 bytes"),
        (card(worker("a"), worker("b"), worker("a")), "lists a worker twice"),
        (card(worker("a"), worker("b", "tokyo")), "of 'tokyo'"),
    ],
)
def test_an_impossible_card_is_refused_by_name(bad: ClusterCard, named: str) -> None:
    with pytest.raises(RemoteProtocolError, match=named):
        decode_cluster_card(encode_card(bad))


@pytest.mark.parametrize("name", ["", "zz", "A" * 32, "a" * 31, "a" * 32 + "\n"])
def test_a_card_that_names_what_no_peer_is_called_is_refused(name: str) -> None:
    """Regression: such a worker became a voter, and nobody could read that decision, nor its author its own disk."""
    peer = PeerId(name)
    with pytest.raises(RemoteProtocolError, match="malformed card"):
        decode_peer_card(encode_card(structs.replace(worker("a"), peer=peer)))
    for bad in (
        structs.replace(card(worker("a")), leader=peer),
        card(worker("a"), structs.replace(worker("b"), peer=peer)),
    ):
        with pytest.raises(RemoteProtocolError, match="malformed card"):
            decode_cluster_card(encode_card(bad))


@pytest.mark.parametrize("name", ["A", "../x", "a" * 64, "a\n", "\x1b[2J"])
def test_a_card_that_names_what_no_cluster_is_called_is_refused(name: str) -> None:
    """Regression: a long name did not fit into the cards of others, who published nothing, and changed no voters."""
    cluster = ClusterId(name)
    with pytest.raises(RemoteProtocolError, match="malformed card"):
        decode_peer_card(encode_card(structs.replace(worker("a"), cluster=cluster)))
    for bad in (
        structs.replace(card(worker("a", name)), cluster=cluster),
        card(worker("a"), links=(LinkCard(cluster, 1.0, 1.0, 0.1, 0.0),)),
    ):
        with pytest.raises(RemoteProtocolError, match="malformed card"):
            decode_cluster_card(encode_card(bad))


@given(st.binary(max_size=200))
@example(b"\x94\xa1\xff\xa0\xa0\xc4\x00")  # text that is not UTF-8 is no MsgspecError
def test_garbage_is_refused_with_a_typed_error(garbage: bytes) -> None:
    for decode in (decode_peer_card, decode_cluster_card):
        try:
            decode(garbage)
        except RemoteProtocolError:
            continue


def test_the_directory_names_leaders_mates_and_ignores_observers() -> None:
    directory = Directory(worker("me"))
    directory.learn_peer(worker("mate"))
    directory.learn_peer(worker("watcher", cluster=""))
    directory.learn_claim(ClusterId("tokyo"), 0, worker("z").peer)
    directory.learn_cluster(ClusterCard(ClusterId("tokyo"), worker("t").peer, 1, (worker("t", "tokyo"),)))
    directory.learn_claim(ClusterId("tokyo"), 1, worker("a").peer)
    assert [m.peer for m in directory.mates()] == [worker("mate").peer]
    assert directory.leader_of(ClusterId("tokyo")) == worker("t").peer
    assert directory.cluster_of(worker("t").peer) == "tokyo"
    assert directory.cluster_of(worker("watcher").peer) is None
    directory.forget_cluster(ClusterId("tokyo"))
    assert directory.leader_of(ClusterId("tokyo")) is None
    assert directory.cluster_of(worker("t").peer) == "tokyo"


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 4000))
def test_a_card_that_is_too_long_keeps_its_leader_and_as_many_as_fit_of_those_who_may_vote_first(
    durable: list[bool], size: int
) -> None:
    others = [structs.replace(worker(f"w{n:02d}"), durable=each) for n, each in enumerate(durable)]
    whole = card(worker("leader"), *others, links=(LinkCard(ClusterId("tokyo"), 1e6, 2e6, 0.1, 0.0),))
    short = fitted(whole, size)
    assert short.workers[0] == worker("leader")
    listed = set(short.workers)
    assert short == structs.replace(whole, workers=tuple(w for w in whole.workers if w in listed)), "nothing else goes"
    left_out = [w for w in others if w not in listed]
    if any(w.durable for w in left_out):
        assert all(w.durable for w in short.workers)
    if left_out:
        least = min(len(encode_card(w)) for w in left_out)
        assert len(encode_card(short)) <= size or listed == {worker("leader")}
        assert len(encode_card(short)) + least + 5 > size, "one more would not have fitted"


@given(st.integers(1, 40))
def test_five_hundred_workers_with_their_links_fit_into_a_record(links: int) -> None:
    keys = random.Random(0)
    cluster = ClusterId("frankfurt-am-main")
    workers = [
        PeerCard(PeerId(keys.randbytes(16).hex()), cluster, f"10.101.{n // 250}.{n % 250}:17450", keys.randbytes(32))
        for n in range(500)
    ]
    rows = tuple(LinkCard(ClusterId(f"cluster-{n:03d}"), 1.2e8, 1.1e8, 0.043, 0.01, 0.0, 0.0) for n in range(links))
    whole = ClusterCard(cluster, workers[0].peer, 3, tuple(workers), True, 12345, rows)
    assert fitted(whole, MAX_PAYLOAD) is whole
    assert decode_cluster_card(encode_card(whole)) == whole
