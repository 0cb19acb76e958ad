"""When a lost quorum is told: once it has lasted, once, and its return as well."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.agreement.quorum_watch import QuorumWatch

DEADLINE = 3.0


def test_what_comes_and_goes_within_the_deadline_is_no_news() -> None:
    watch = QuorumWatch(DEADLINE)
    for began in (0.0, 10.0, 20.0):
        assert not watch.stuck(began, began)
        assert watch.due == began + DEADLINE
        assert not watch.stuck(began, began + DEADLINE - 0.1)
        assert not watch.free()
        assert watch.due is None


def test_it_is_counted_from_when_it_began_and_not_from_what_shows_it_now() -> None:
    watch = QuorumWatch(DEADLINE)
    assert not watch.stuck(1.0, 2.0)
    assert not watch.stuck(3.5, 3.9)
    assert watch.stuck(3.5, 4.0)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 5.0)), max_size=30))
def test_loss_and_return_are_told_in_turn_and_once_each(story: list[tuple[bool, float]]) -> None:
    watch, now, lost = QuorumWatch(DEADLINE), 0.0, False
    for stuck, seconds in story:
        now += seconds
        if watch.stuck(now, now) if stuck else watch.free():
            assert stuck != lost
            lost = stuck
        assert watch.due is None or not lost
        assert stuck or not lost
