from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ictp2p.errors import LocalProtocolError
from ictp2p.routing.algebra import (
    INFINITY,
    PIECE,
    RELAY,
    TICK,
    Distance,
    Link,
    extend,
    link_cost,
    seconds,
    significant,
)

METRICS = st.integers(0, INFINITY)
LINKS = st.builds(Link, st.floats(0, 1e12), st.none() | st.floats(1e-6, 1e15))
DISTANCES = st.builds(Distance, st.integers(0, 3), st.integers(0, 3))


@given(LINKS)
@example(Link(0.0))
@example(Link(1e300, 1e-300))
def test_every_link_costs_something_and_no_more_than_infinity(link: Link) -> None:
    assert 1 <= link_cost(link) <= INFINITY


@given(METRICS, LINKS)
def test_extending_a_path_makes_it_strictly_worse(metric: int, link: Link) -> None:
    longer = extend(metric, link_cost(link))
    assert longer > metric or longer == metric == INFINITY


@given(METRICS, METRICS, LINKS)
def test_extending_two_paths_keeps_their_order(a: int, b: int, link: Link) -> None:
    worse, better = max(a, b), min(a, b)
    assert extend(better, link_cost(link)) <= extend(worse, link_cost(link))


@given(DISTANCES, DISTANCES, DISTANCES)
def test_distances_are_strictly_ordered(a: Distance, b: Distance, c: Distance) -> None:
    assert not a.better_than(a)
    assert a.better_than(b) + b.better_than(a) + (a == b) == 1
    assert a.better_than(c) or not (a.better_than(b) and b.better_than(c))


def test_fresher_is_better_then_nearer() -> None:
    assert Distance(2, 9).better_than(Distance(1, 1))
    assert Distance(1, 1).better_than(Distance(1, 2))


def test_a_links_cost_is_its_delay_and_the_time_to_forward_a_message() -> None:
    assert link_cost(Link(0.1)) == 0.05 / TICK + RELAY
    assert link_cost(Link(0.1, PIECE)) == 1.05 / TICK + RELAY
    assert link_cost(Link(0.0)) == 1 + RELAY


@given(st.floats(0.04, 1.0), st.floats(1e6, 1e12))
def test_how_wide_a_link_is_that_is_not_slow_is_no_news_of_its_cost(srtt: float, bandwidth: float) -> None:
    assert not significant(link_cost(Link(srtt)), link_cost(Link(srtt, bandwidth)), 0.25)


def test_a_paths_delay_counts_relays_and_not_the_last_hop() -> None:
    one, other = Link(0.1), Link(0.2)
    assert seconds(link_cost(one)) == pytest.approx(0.05)
    assert seconds(extend(link_cost(one), link_cost(other))) == pytest.approx(0.15 + RELAY * TICK)
    assert seconds(0) == 0.0


@pytest.mark.parametrize(
    ("srtt", "bandwidth"),
    [(-1.0, None), (math.nan, None), (math.inf, 1.0), (0.1, 0.0), (0.1, math.nan), (0.1, math.inf)],
)
def test_a_link_that_cannot_be_is_refused(srtt: float, bandwidth: float | None) -> None:
    with pytest.raises(LocalProtocolError, match="link"):
        Link(srtt, bandwidth)


def test_a_quarter_is_not_yet_significant() -> None:
    assert not significant(100, 125, 0.25)
    assert significant(100, 126, 0.25)
    assert significant(100, 74, 0.25)
