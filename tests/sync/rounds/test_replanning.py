from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.replanning import COST, DETOUR, MOST, Ask, Replanning

PROFILE = RoundProfile.lan()
seconds = st.floats(0, 1000)


def watched(number: int = 1, now: float = 0.0) -> Replanning:
    replanning = Replanning(PROFILE)
    replanning.opened(number, now)
    return replanning


def known(running: float, new: float) -> Ask:
    """Both plans, of which nothing is known before the new one is made."""
    return lambda forecast: (running, 0.0 if forecast else new)


@given(seconds, seconds, st.floats(0, 1), st.floats(0, 1), st.floats(0, 500))
def test_nothing_is_given_up_that_would_be_over_sooner(
    running: float, new: float, bound: float, done: float, now: float
) -> None:
    """And a forecast by what no plan can beat changes nothing but how often one is made."""
    replanning, plain = watched(), watched()
    replanning.progressed(done)
    plain.progressed(done)
    made: list[float] = []

    def ask(forecast: bool) -> tuple[float, float]:
        if not forecast:
            made.append(new)
        return running, bound * new if forecast else new

    reason = replanning.look(0.0, ask, now)
    given_up = reason is not None
    assert reason == plain.look(0.0, known(running, new), now)
    left = (1 - done) * running
    assert not made or left > DETOUR * bound * new + COST, "a plan is dear to make"
    if given_up:
        assert made
        assert now >= PROFILE.replan
        assert new > 0
        assert (1 - done) * running > DETOUR * new + COST, "what is left, by the links"
        assert done == 0 or now * (1 - done) / done > DETOUR * new + COST, "and by its own pace"


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


def test_the_planner_is_asked_ever_more_rarely() -> None:
    replanning, asked = watched(), 0

    def ask(forecast: bool) -> tuple[float, float]:
        nonlocal asked
        asked += 1
        return 10.0, 10.0

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
