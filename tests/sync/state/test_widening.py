"""When a fetch tries several connections, and when it keeps them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.state.widening import GAIN, Step, Widening

SPAN = 0.5
CHUNK = 1_000_000


def steps(rate: Callable[[float, list[float]], float], opening: float, seconds: float = 60.0) -> list[Step]:
    """What is done, where bytes arrive at `rate(now, when there were more connections)`."""
    widening, now, arrived, found, widened = Widening(SPAN), 0.0, 0.0, list[Step](), list[float]()
    due: float | None = None
    while now < seconds:
        now += 0.01
        arrived += rate(now, widened) * 0.01
        if due is not None and now >= due:
            widening.widened(int(arrived), now)
            due = None
            widened.append(now)
        step = widening.look(int(arrived), now)
        found += [] if step is None else [step]
        if step is Step.WIDEN:
            due = now + opening
    return found


@given(
    alone=st.floats(1e5, 1e9),
    gains=st.lists(st.floats(0.5, 4.0).filter(lambda g: not 0.97 * GAIN < g < 1.03 * GAIN), min_size=1, max_size=4),
    ramp=st.floats(0.05, 3.0),
    opening=st.floats(0.0, 3.0),
)
def test_it_is_tried_as_often_as_it_gains(alone: float, gains: list[float], ramp: float, opening: float) -> None:
    """However long the first one takes to find its rate; the others have theirs within a second."""

    def rate(now: float, widened: list[float]) -> float:
        first = alone * min(1.0, 2 ** ((now - ramp) / 0.1))
        found = sum(now > at + 1.0 for at in widened)
        return first * math.prod(gains[:found])

    gained = next((n for n, gain in enumerate(gains) if gain < GAIN), len(gains))
    assert steps(rate, opening) == [Step.WIDEN] * (gained + 1) + [Step.NARROW]


def test_what_grows_still_is_not_bounded_yet() -> None:
    assert steps(lambda now, _: 1e6 * 4 ** (now / SPAN), 0.1, seconds=5.0) == []


def test_nothing_is_tried_while_nothing_comes() -> None:
    assert steps(lambda now, _: 0.0, 0.1) == []


def test_a_standstill_is_no_rate_that_could_be_gained_on() -> None:
    assert steps(lambda now, _: 1e6 if now < 0.4 else 0.0, 0.1) == []


@pytest.mark.parametrize("arrived", [0, 10**9])
def test_who_was_refused_asks_no_more(arrived: int) -> None:
    widening = Widening(SPAN)
    widening.refused()
    assert {widening.look(arrived * n, float(n)) for n in range(20)} == {None}
