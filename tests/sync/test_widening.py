"""When a fetch tries several connections, and when it keeps them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.widening import GAIN, Step, Widening

SPAN = 0.5
CHUNK = 1_000_000


def steps(rate: Callable[[float, float | None], float], opening: float, seconds: float = 60.0) -> list[Step]:
    """What is done, where bytes arrive at `rate(now, since when there are several connections)`."""
    widening, now, arrived, found, widened = Widening(SPAN), 0.0, 0.0, list[Step](), None
    due: float | None = None
    while now < seconds:
        now += 0.01
        arrived += rate(now, widened) * 0.01
        if due is not None and now >= due:
            widening.widened(int(arrived), now)
            due, widened = None, now
        step = widening.look(int(arrived), now)
        found += [] if step is None else [step]
        if step is Step.WIDEN:
            due = now + opening
    return found


@given(
    alone=st.floats(1e5, 1e9),
    gain=st.floats(0.5, 4.0).filter(lambda g: not 0.97 * GAIN < g < 1.03 * GAIN),
    ramp=st.floats(0.05, 3.0),
    opening=st.floats(0.0, 3.0),
)
def test_it_is_tried_once_and_kept_where_it_gains(alone: float, gain: float, ramp: float, opening: float) -> None:
    """However long the first one takes to find its rate; the others have theirs within a second."""

    def rate(now: float, widened: float | None) -> float:
        first = alone * min(1.0, 2 ** ((now - ramp) / 0.1))
        return first if widened is None else alone * (gain if now > widened + 1.0 else 1.0)

    assert steps(rate, opening) == [Step.WIDEN, *([] if gain > GAIN else [Step.NARROW])]


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
