from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.routing.algebra import INFINITY, Distance
from ictp2p.routing.profile import RoutingProfile
from ictp2p.routing.sources import SourceTable
from ictp2p.routing.table import Choice, RouteTable

KEY = ("d", 0)
PROFILE = RoutingProfile(classes=1)
DISTANCES = st.builds(Distance, st.integers(1, 3), st.integers(0, 60) | st.just(INFINITY))
OFFER = st.tuples(DISTANCES, st.integers(1, 20))
OFFERS = st.dictionaries(st.sampled_from("lmno"), OFFER)


def table(advertised: Distance, **offers: tuple[Distance, int]) -> RouteTable:
    sources = SourceTable(180.0)
    sources.advertise(KEY, advertised, 0.0)
    routes = RouteTable(sources, PROFILE)
    for neighbour, (offer, cost) in offers.items():
        routes.costs[neighbour] = [cost]
        routes.learn(KEY, neighbour, offer)
    return routes


@given(st.builds(Distance, st.integers(1, 3), st.integers(1, 60)), OFFERS)
def test_the_first_choice_is_the_nearest_feasible_offer(
    advertised: Distance, offers: dict[str, tuple[Distance, int]]
) -> None:
    usable = sorted(
        (offer.metric + cost, neighbour)
        for neighbour, (offer, cost) in offers.items()
        if offer.metric < INFINITY and (-offer.seqno, offer.metric) < (-advertised.seqno, advertised.metric)
    )
    choice = table(advertised, **offers).choose(KEY, 0.0)
    assert (choice and (choice.metric, choice.neighbour)) == (usable[0] if usable else None)


def test_freshness_does_not_attract() -> None:
    routes = table(Distance(1, 100), old=(Distance(1, 10), 1), fresh=(Distance(9, 20), 1))
    assert routes.choose(KEY, 0.0) == Choice("old", Distance(1, 10), 11)


def test_a_stale_choice_stands_on_what_it_was_made_of() -> None:
    routes = table(Distance(1, 100), m=(Distance(1, 10), 1))
    routes.choose(KEY, 0.0)
    routes.learn(KEY, "m", Distance(1, 100))
    routes.costs["m"] = [5]
    assert routes.choose(KEY, 1.0) == Choice("m", Distance(1, 10), 15, stale=True)
    assert routes.lacks_freshness(KEY)
    routes.learn(KEY, "m", Distance(2, 100))
    assert routes.choose(KEY, 1.0) == Choice("m", Distance(2, 100), 105)


@given(st.lists(st.floats(0.0, 30.0), max_size=12))
def test_a_stale_choice_stands_for_a_hold_time_and_no_longer(pauses: list[float]) -> None:
    """From when its neighbour's offer was no longer feasible, however often it is weighed, until a fresh one comes."""
    routes = table(Distance(1, 100), m=(Distance(1, 10), 1))
    routes.choose(KEY, 0.0)
    routes.learn(KEY, "m", Distance(1, 100))
    now = 0.0
    for pause in (0.0, *pauses):
        now += pause
        lapsed = now >= PROFILE.hold
        assert bool(routes.outlived(now)) == lapsed
        assert (routes.choose(KEY, now) is None) == lapsed
        if lapsed:
            return
    routes.learn(KEY, "m", Distance(2, 100))
    assert routes.choose(KEY, now) == Choice("m", Distance(2, 100), 101)
    assert not routes.outlived(now + 2 * PROFILE.hold)


def test_only_news_is_news() -> None:
    routes = table(Distance(1, 100))
    assert routes.learn(KEY, "m", Distance(1, 5))
    assert not routes.learn(KEY, "m", Distance(1, 5))
    assert routes.learn(KEY, "m", Distance(0, INFINITY))
    assert not routes.learn(KEY, "m", Distance(0, INFINITY))


STORIES = st.fixed_dictionaries(dict.fromkeys("lmno", OFFER)), st.lists(st.tuples(st.sampled_from("lmno"), DISTANCES))
"""What all offer at first, and then, after each of which the choice is made anew."""


def after(
    advertised: Distance, offers: dict[str, tuple[Distance, int]], words: list[tuple[str, Distance]]
) -> RouteTable:
    routes = table(advertised, **offers)
    routes.choose(KEY, 0.0)
    for neighbour, offer in words:
        routes.learn(KEY, neighbour, offer)
        routes.choose(KEY, 0.0)
    return routes


@given(st.builds(Distance, st.integers(1, 3), st.integers(1, 60)), *STORIES, DISTANCES)
def test_an_offer_that_does_not_matter_would_not_be_chosen(
    advertised: Distance,
    offers: dict[str, tuple[Distance, int]],
    words: list[tuple[str, Distance]],
    news: Distance,
) -> None:
    routes = after(advertised, offers, words)
    before = routes.choose(KEY, 0.0)
    routes.learn(KEY, "m", news)
    if not routes.matters(KEY, "m"):
        assert routes.choose(KEY, 0.0) == before


@given(st.builds(Distance, st.integers(1, 3), st.integers(1, 60)), *STORIES, DISTANCES)
def test_many_classes_at_once_are_heard_as_one_by_one_and_what_is_put_off_can_only_be_better(
    advertised: Distance,
    offers: dict[str, tuple[Distance, int]],
    words: list[tuple[str, Distance]],
    news: Distance,
) -> None:
    one, many = (after(advertised, offers, words) for _ in range(2))
    before = one.choose(KEY, 0.0)
    assert many.choose(KEY, 0.0) == before
    matters = one.learn(KEY, "m", news) and one.matters(KEY, "m")
    urgent, better = many.hear("m", [KEY], news)
    assert one.offered_by("m") == many.offered_by("m")
    assert len(urgent) + len(better) <= int(matters)
    if not urgent and not better:
        assert one.choose(KEY, 0.0) == before
    if better:
        chosen = many.choose(KEY, 100.0)
        assert before is not None
        assert chosen is not None
        assert chosen.metric <= before.metric
        assert not chosen.stale
