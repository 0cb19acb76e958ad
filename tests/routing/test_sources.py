from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.routing.algebra import INFINITY, Distance
from ictp2p.routing.messages import Key
from ictp2p.routing.sources import SourceTable

KEY = ("d", 0)
DISTANCES = st.builds(Distance, st.integers(0, 5), st.integers(0, 20))


@given(st.lists(DISTANCES, min_size=1), DISTANCES)
def test_an_offer_is_feasible_if_it_beats_all_that_was_ever_advertised(told: list[Distance], offer: Distance) -> None:
    table = SourceTable(180.0)
    for distance in told:
        table.advertise(KEY, distance, 0.0)
    best = min(told, key=lambda d: (-d.seqno, d.metric))
    assert table.distance(KEY) == best
    assert table.feasible(KEY, offer) == ((-offer.seqno, offer.metric) < (-best.seqno, best.metric))


def test_an_equal_distance_is_not_feasible() -> None:
    table = SourceTable(180.0)
    table.advertise(KEY, Distance(3, 7), 0.0)
    assert not table.feasible(KEY, Distance(3, 7)), "with equals, two routers could choose each other"
    assert table.feasible(KEY, Distance(3, 6))
    assert table.feasible(KEY, Distance(4, 99))


def test_what_was_never_advertised_binds_nobody() -> None:
    assert SourceTable(180.0).feasible(KEY, Distance(0, 10**6))


def test_a_retraction_is_always_feasible() -> None:
    table = SourceTable(180.0)
    table.advertise(KEY, Distance(9, 1), 0.0)
    assert table.feasible(KEY, Distance(0, INFINITY))


def test_a_distance_lives_until_it_is_taken_back_and_a_lifetime_more() -> None:
    table = SourceTable(180.0)
    table.advertise(KEY, Distance(1, 1), 0.0)
    table.advertise(KEY, Distance(1, 9), 100.0)
    table.expire(10_000.0, {KEY}.__contains__)
    assert table.distance(KEY) == Distance(1, 1), "a neighbour may still hold it: it was never taken back"
    table.retract(KEY, 10_000.0)
    table.expire(10_179.0, set[Key]().__contains__)
    assert table.distance(KEY) == Distance(1, 1)
    table.expire(10_180.0, set[Key]().__contains__)
    assert table.distance(KEY) is None
    table.retract(KEY, 10_181.0)
    assert table.distance(KEY) is None
