from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.routing.pace import Pace
from ictp2p.routing.profile import RoutingProfile

PROFILE = RoutingProfile(trigger_delay=0.2, trigger_most=2.0)


@given(st.lists(st.floats(0.0, 3.0), max_size=40), st.integers(0, 2**32))
def test_news_waits_no_longer_than_agreed_and_after_quiet_no_longer_than_one_change(
    gaps: list[float], seed: int
) -> None:
    pace, now = Pace(PROFILE, random.Random(seed)), 0.0
    for gap in gaps:
        now += gap
        assert 0.0 < pace.due(now) - now <= PROFILE.trigger_most
        pace.told(pace.due(now))
    pace.told(now + 100.0)
    assert pace.due(now + 100.0) - (now + 100.0) <= PROFILE.trigger_delay


@given(st.lists(st.floats(0.0, 3.0), max_size=40), st.floats(0.0, 100.0), st.integers(0, 2**32))
def test_the_first_news_after_quiet_waits_briefly_however_long_the_burst_before_it(
    gaps: list[float], more: float, seed: int
) -> None:
    pace, now = Pace(PROFILE, random.Random(seed)), 0.0
    for gap in gaps:
        now = pace.due(now + gap)
        pace.told(now)
    quiet = now + 2 * PROFILE.trigger_most + PROFILE.trigger_delay + more
    assert pace.due(quiet) <= quiet + PROFILE.trigger_delay


def test_in_a_burst_the_wait_doubles_up_to_its_bound() -> None:
    pace, now, waits = Pace(PROFILE, random.Random(0)), 0.0, []
    for _ in range(6):
        due = pace.due(now)
        waits.append(due - now)
        pace.told(due)
        now = due
    for wait, longest in zip(waits, (0.2, 0.2, 0.4, 0.8, 1.6, 2.0), strict=True):
        assert longest / 2 <= wait <= longest


@given(st.lists(st.floats(0.0, 1.0), max_size=40))
def test_bad_news_is_told_at_once_but_for_what_was_told_this_very_moment(gaps: list[float]) -> None:
    pace, now, told = Pace(PROFILE, random.Random(0)), 0.0, -1.0
    for gap in gaps:
        now = max(now + gap, told)
        due = pace.at_once(now)
        assert now <= due <= now + PROFILE.trigger_delay / 4
        assert due >= told + PROFILE.trigger_delay / 4
        assert due == now or now < told + PROFILE.trigger_delay / 4
        pace.told(due)
        told = due
