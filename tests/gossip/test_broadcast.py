from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.broadcast import BroadcastQueue, detail_limit, transmit_limit
from ictp2p.gossip.messages import Dead, News, Record, Suspect

MANY = 1 << 20


def record(member: str, incarnation: int = 1, payload: bytes = b"") -> Record:
    return Record(member, incarnation, 0, payload)


@pytest.mark.parametrize(("members", "limit"), [(1, 4), (2, 4), (9, 4), (10, 8), (99, 8), (100, 12)])
def test_transmit_limit_grows_with_the_logarithm(members: int, limit: int) -> None:
    assert transmit_limit(members, 4) == limit


def test_least_transmitted_goes_first_then_newest() -> None:
    queue = BroadcastQueue()
    queue.put(record("a"))
    queue.take(MANY, 10)
    queue.put(record("b"))
    queue.put(record("c"))
    assert [n.member for n in queue.take(MANY, 10)] == ["c", "b", "a"]
    queue.put(record("d"))
    assert queue.take(1, 10) == (record("d"),)


def test_newer_news_takes_the_place_of_older_of_its_kind() -> None:
    queue = BroadcastQueue()
    queue.put(Suspect("a", 1, "x"))
    queue.put(record("b"))
    queue.put(Dead("a", 1, "y"))
    assert set(queue.take(MANY, 10)) == {Dead("a", 1, "y"), record("b")}


def test_a_refutation_removes_the_accusation_that_it_refutes() -> None:
    queue = BroadcastQueue()
    queue.put(Suspect("a", 1, "x"))
    queue.put(record("a", 1))
    assert len(queue) == 2
    queue.put(record("a", 2))
    assert queue.take(MANY, 10) == (record("a", 2),)


def test_something_always_fits_and_the_rest_waits() -> None:
    queue = BroadcastQueue()
    for name in "abc":
        queue.put(record(name, payload=b"x" * 1000))
    assert [n.member for n in queue.take(10, 2)] == ["c"]
    assert [n.member for n in queue.take(2500, 2)] == ["b", "a"]


def test_clear_empties() -> None:
    queue = BroadcastQueue()
    queue.put(record("a"))
    queue.clear()
    assert not queue
    assert queue.take(MANY, 1) == ()


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=20), st.integers(1, 8), st.integers(1, 2000))
def test_every_piece_is_sent_exactly_as_often_as_allowed(names: list[str], limit: int, size: int) -> None:
    queue = BroadcastQueue()
    for name in names:
        queue.put(record(name))
    sent: list[News] = []
    while queue:
        taken = queue.take(size, limit)
        assert taken
        sent.extend(taken)
    assert {n: [s.member for s in sent].count(n) for n in set(names)} == dict.fromkeys(names, limit)


@given(st.integers(1, 10**6))
def test_details_are_sent_half_as_often_where_that_still_reaches_most(members: int) -> None:
    limit = transmit_limit(members, 4)
    assert detail_limit(limit) == (limit if limit <= 4 else limit // 2)
    assert detail_limit(limit) >= 4
    queue = BroadcastQueue()
    queue.put(msgspec.structs.replace(record("a"), detail=True))
    queue.put(record("b"))
    sent = [{news.member for news in queue.take(MANY, limit)} for _ in range(limit)]
    assert sent == [{"a", "b"}] * detail_limit(limit) + [{"b"}] * (limit - detail_limit(limit))
    assert not queue


def test_whether_more_than_details_waits() -> None:
    queue = BroadcastQueue()
    detail = msgspec.structs.replace(record("a"), detail=True)
    queue.put(detail)
    assert not queue.presses
    queue.put(Suspect("a", 1, "x"))
    assert queue.presses
    queue.put(msgspec.structs.replace(record("a", 2), detail=True))
    assert not queue.presses, "it refutes the accusation"
    queue.put(record("a", 3))
    assert queue.presses
    queue.put(msgspec.structs.replace(record("a", 4), detail=True))
    assert queue.presses, "what it took the place of was no detail, and is in it"
    queue.take(MANY, 1)
    assert not queue.presses, "it was sent as often as it should be"
    queue.put(record("b"))
    queue.clear()
    assert not queue.presses
