"""When a lost quorum is told: once it has lasted while we looked, once, and its return as well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.agreement.quorum_watch import QuorumWatch

DEADLINE = 3.0


def news(watch: QuorumWatch, began: float) -> float:
    """When a process that looks whenever it is to, and finds nothing decided since `began`, tells of it."""
    now = began
    while not watch.stuck(now):
        assert watch.due is not None
        assert watch.due > now
        now = watch.due
    return now


def test_what_comes_and_goes_within_the_deadline_is_no_news() -> None:
    watch = QuorumWatch(DEADLINE)
    for began in (0.0, 10.0, 20.0):
        now = began
        while now < began + DEADLINE - 0.1:
            assert not watch.stuck(now)
            now += 0.01
        assert not watch.free()
        assert watch.due is None


@given(st.floats(0.0, 1e9))
def test_it_is_news_when_the_deadline_has_passed_since_it_began(began: float) -> None:
    assert news(QuorumWatch(DEADLINE), began) == pytest.approx(began + DEADLINE, rel=1e-12, abs=1e-6)


@pytest.mark.parametrize("before", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("stood", [DEADLINE, 4.0, 3600.0])
def test_what_a_process_stood_still_counts_for_one_look_at_most(before: float, stood: float) -> None:
    """Regression: one whose disk took as long as the deadline told its program that nothing could be decided."""
    watch, now = QuorumWatch(DEADLINE), 0.0
    while now < before:
        assert not watch.stuck(now)
        now = min(watch.due or now, before)
    assert not watch.stuck(before)
    woken = before + stood
    assert not watch.stuck(woken)
    assert news(watch, woken) > woken + DEADLINE - before - 0.5, "who is asked only now has time to answer"


def test_who_is_late_for_each_look_tells_of_it_all_the_same() -> None:
    watch, now = QuorumWatch(DEADLINE), 0.0
    while not watch.stuck(now):
        now += 60.0
        assert now <= 10 * 60.0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.floats(0.0, 5.0)), max_size=10))
def test_loss_and_return_are_told_in_turn_and_once_each(story: list[tuple[bool, int, float]]) -> None:
    """In a story of so many looks in a row, with as many seconds from one to the next."""
    watch, now, lost = QuorumWatch(DEADLINE), 0.0, False
    for stuck, seconds in [(stuck, seconds) for stuck, looks, seconds in story for _ in range(looks)]:
        now += seconds
        if watch.stuck(now) if stuck else watch.free():
            assert stuck != lost
            lost = stuck
        assert watch.due is None or not lost
        assert stuck or not lost
