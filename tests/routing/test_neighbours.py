from __future__ import annotations

from ictp2p.routing.algebra import INFINITY, Link, link_cost
from ictp2p.routing.neighbours import Neighbour
from ictp2p.routing.profile import RoutingProfile

PROFILE = RoutingProfile(classes=3)
SLOW, FAST = Link(0.01, 300e3), Link(0.01, 2e6)


def test_a_link_costs_infinity_in_the_classes_above_it() -> None:
    neighbour = Neighbour(SLOW, PROFILE, 0.0)
    assert neighbour.costs == [link_cost(SLOW), INFINITY, INFINITY]


def test_a_measurement_moves_the_cost_at_once_and_the_class_on_evidence() -> None:
    neighbour = Neighbour(SLOW, PROFILE, 0.0)
    neighbour.measured(FAST)
    assert neighbour.costs == [link_cost(FAST), INFINITY, INFINITY]
    neighbour.measured(FAST)
    neighbour.measured(FAST)
    assert neighbour.costs == [link_cost(FAST)] * 3


def test_one_who_says_nothing_is_asked_more_and_more_rarely() -> None:
    neighbour = Neighbour(SLOW, PROFILE, 0.0)
    times = []
    for _ in range(5):
        due = neighbour.next_timeout()
        assert due is not None
        assert not neighbour.must_ask(due - 0.01)
        assert neighbour.must_ask(due)
        times.append(due)
    assert times == [1.0, 2.0, 4.0, 8.0, 24.0]


def test_one_who_told_everything_is_trusted_for_a_hold_time_and_then_asked() -> None:
    neighbour = Neighbour(SLOW, PROFILE, 0.0)
    assert not neighbour.told(7, False, 1.0), "there was more before it"
    assert neighbour.told(0, True, 5.0)
    assert neighbour.next_timeout() == 5.0 + PROFILE.hold
    assert not neighbour.must_ask(30.0)
    assert not neighbour.expired(60.9)
    assert neighbour.expired(61.0)
    assert not neighbour.expired(61.0), "once"
    assert neighbour.must_ask(61.0)


def test_who_goes_on_counting_is_trusted_longer_and_a_gap_is_asked_about_at_once() -> None:
    neighbour = Neighbour(SLOW, PROFILE, 0.0)
    assert neighbour.told(0, True, 1.0)
    assert neighbour.told(1, False, 10.0)
    assert neighbour.next_timeout() == 10.0 + PROFILE.hold
    assert not neighbour.told(3, False, 20.0)
    assert neighbour.must_ask(20.0)
    assert not neighbour.told(4, False, 20.5), "what was missed is still missing"
    assert not neighbour.told(1, False, 20.6)
    assert neighbour.told(5, True, 21.0)
    assert not neighbour.must_ask(22.0)
    assert neighbour.told(6, False, 22.0)
    assert not neighbour.told(6, False, 23.0), "twice the same is no progress"


def test_what_was_said_before_the_newest_word_is_past() -> None:
    neighbour = Neighbour(SLOW, PROFILE, 0.0)
    assert not neighbour.is_past(0)
    neighbour.told(3, True, 1.0)
    neighbour.told(5, False, 2.0)
    assert [number for number in range(8) if neighbour.is_past(number)] == [0, 1, 2, 3, 4, 5]


def test_who_was_silent_must_tell_everything_again() -> None:
    neighbour = Neighbour(SLOW, PROFILE, 0.0)
    neighbour.told(0, True, 0.0)
    assert neighbour.expired(PROFILE.hold)
    assert not neighbour.told(1, False, PROFILE.hold + 1.0)
    assert neighbour.must_ask(PROFILE.hold + 1.0)
