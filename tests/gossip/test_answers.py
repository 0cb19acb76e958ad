from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.answers import Answers

SECONDS = st.floats(1e-3, 10.0)


def told(*samples: float, most: float = 60.0) -> Answers:
    answers = Answers(most)
    for number, seconds in enumerate(samples):
        answers.asked(number, 0.0)
        answers.came(number, seconds)
    return answers


def test_before_the_first_answer_nothing_is_wanted() -> None:
    answers = Answers(60.0)
    answers.asked(1, 0.0)
    assert answers.wanted == 0.0


@given(SECONDS, SECONDS)
def test_what_answers_always_take_is_wanted_whatever_they_took_once(always: float, once: float) -> None:
    wanted = told(once, *[always] * 150).wanted
    assert wanted == pytest.approx(always, rel=0.01)


@given(st.lists(SECONDS, max_size=60))
def test_little_more_is_wanted_than_the_slowest(samples: list[float]) -> None:
    assert 0.0 <= told(*samples).wanted <= 5 * max(samples, default=0.0)


@given(st.lists(st.floats(0.0, 1e6), max_size=10), st.floats(0.01, 0.2))
def test_slow_answers_while_a_mesh_comes_up_are_soon_forgotten(slow: list[float], usual: float) -> None:
    assert told(*slow, *[usual] * 15, most=3.0).wanted < 1.0


def test_the_first_answer_counts_and_one_to_a_probe_of_long_ago_does_not() -> None:
    answers = Answers(60.0)
    for number in range(5):
        answers.asked(number, float(number))
    answers.came(0, 9.0)
    answers.came(7, 9.0)
    assert answers.wanted == 0.0
    answers.came(1, 2.0)
    answers.came(1, 60.0)
    assert answers.wanted == pytest.approx(1.0 / 4 + 4 * 1.0 / 4)


def test_what_came_while_this_process_was_late_says_nothing() -> None:
    answers = Answers(60.0)
    answers.asked(1, 0.0)
    answers.excuse()
    answers.came(1, 60.0)
    assert answers.wanted == 0.0
