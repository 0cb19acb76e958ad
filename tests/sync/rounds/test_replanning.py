from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.opening import Rival
from ictp2p.sync.rounds.replanning import COST, DETOUR, MOST, Ask, Replanning

PROFILE = RoundProfile.lan()
seconds = st.floats(0, 1000)


def watched(number: int = 1, now: float = 0.0) -> Replanning:
    replanning = Replanning(PROFILE)
    replanning.opened(number, now)
    return replanning


def known(running: float, new: float, proven: float = 0.0) -> Ask:
    """The plans, of which nothing is known of the new one before it is made."""
    return lambda forecast: Rival(running, 0.0 if forecast else new, proven)


@given(seconds, seconds, st.floats(0, 1), st.floats(0, 1), st.floats(0, 500), st.just(0.0) | seconds)
def test_nothing_is_given_up_that_would_be_over_sooner(
    running: float, new: float, bound: float, done: float, now: float, proven: float
) -> None:
    """And a forecast by what no plan can beat changes nothing but how often one is made."""
    replanning, plain = watched(), watched()
    replanning.progressed(done)
    plain.progressed(done)
    made: list[float] = []

    def ask(forecast: bool) -> Rival:
        if not forecast:
            made.append(new)
        return Rival(running, bound * new if forecast else new, proven)

    reason = replanning.look(0.0, ask, now)
    assert reason == plain.look(0.0, known(running, new, proven), now)
    left, pace = (1 - done) * running, now * (1 - done) / done if done else float("inf")
    vain = proven > 0 and min(now, pace) > DETOUR * proven + COST
    assert not made or vain or left > DETOUR * bound * new + COST, "a plan is dear to make"
    better = new > 0 and min(left, pace) > DETOUR * new + COST
    """By the links, and by its own pace."""
    assert (reason is not None) == (now >= PROFILE.replan and (vain or better))
    assert reason is None or made


def test_a_link_that_lost_its_bandwidth_ends_the_attempt() -> None:
    replanning = watched()
    assert replanning.look(0.0, known(170.0, 19.0), PROFILE.replan - 0.1) is None, "too early to tell"
    replanning.progressed(0.05)
    reason = replanning.look(0.0, known(170.0, 19.0), PROFILE.replan)
    assert reason is not None
    assert "19 s" in reason


def test_a_wrong_measurement_alone_ends_nothing() -> None:
    replanning = watched()
    replanning.progressed(0.8)
    assert replanning.look(0.0, known(1700.0, 19.0), 2 * PROFILE.replan) is None


def test_a_trial_that_has_shown_what_it_is_worth_ends_for_what_is_known() -> None:
    """Regression: by the links it was to take 8 s, so it was let go on for 61, where another had taken 9.5."""
    replanning, ask, now = watched(), known(8.0, 8.0, proven=9.5), 0.0
    reason = None
    while reason is None and now < 61.0:
        now = replanning.wake() or 61.0
        replanning.progressed(now / 61.0)
        reason = replanning.look(0.0, ask, now)
    assert now == pytest.approx(DETOUR * 9.5 + COST, abs=0.01), "as soon as it has taken so long"
    assert str(reason).startswith("a plan is known that takes 9.5 s, this one takes 45.7 s more")
    replanning = watched()
    replanning.progressed(0.6)
    assert replanning.look(0.0, ask, 16.0) is None, "the rest of it is over sooner"
    replanning = watched()
    replanning.progressed(0.05)
    assert replanning.look(0.0, ask, 15.0) is None, "it has not had its time"


def test_the_planner_is_asked_ever_more_rarely() -> None:
    replanning, asked = watched(), 0

    def ask(forecast: bool) -> Rival:
        nonlocal asked
        asked += 1
        return Rival(10.0, 10.0)

    for tick in range(6000):
        replanning.look(0.0, ask, tick / 10)
    assert asked <= 8


@given(st.lists(st.booleans(), max_size=8))
def test_a_round_is_begun_anew_only_so_often(new_rounds: list[bool]) -> None:
    replanning, number, now, given_up = watched(), 1, 0.0, 0
    for fresh in new_rounds:
        number, given_up = (number + 1, 0) if fresh else (number, given_up)
        replanning.opened(number, now)
        given_up += replanning.look(now, known(1e6, 1.0), now + 100) is not None
        now += 200
        assert given_up <= MOST
        assert (replanning.wake() is None) == (given_up == MOST)
