from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.routing.classes import LinkClasses, class_bandwidth, fastest

W = class_bandwidth


def member(*samples: float | None) -> int:
    classes = LinkClasses(11)
    for sample in samples:
        classes.sample(sample)
    return classes.top


def test_classes_double_from_two_megabits() -> None:
    assert W(0) == 250_000
    assert W(10) == 256_000_000


@pytest.mark.parametrize(
    ("bandwidth", "top"), [(1.0, 0), (W(0), 0), (W(3) - 1, 2), (W(3), 3), (W(10), 10), (1e12, 10), (None, 0)]
)
def test_the_first_measurement_is_believed(bandwidth: float | None, top: int) -> None:
    assert member(bandwidth) == top


def test_a_class_is_left_on_the_second_bad_measurement_in_a_row() -> None:
    bad, fair = 0.79 * W(5), 0.81 * W(5)
    assert member(W(5), bad) == 5
    assert member(W(5), bad, bad) == 4
    assert member(W(5), bad, fair, bad) == 5
    assert member(W(5), *[fair] * 9) == 5


def test_a_class_is_entered_on_the_third_good_measurement_in_a_row() -> None:
    good, fair = 1.26 * W(6), 1.24 * W(6)
    assert member(W(5), good, good) == 5
    assert member(W(5), good, good, good) == 6
    assert member(W(5), good, good, fair, good, good) == 5
    assert member(W(5), *[fair] * 9) == 5


def test_of_a_row_the_least_move_counts() -> None:
    assert member(W(5), W(1), W(4)) == 4
    assert member(W(5), 1e12, W(8), 1e12) == 7


def test_a_link_whose_measurement_aged_out_is_in_class_zero_and_begins_anew() -> None:
    assert member(W(5), None) == 0
    assert member(W(5), 0.1 * W(5), None, W(7)) == 7


@given(st.lists(st.none() | st.floats(1.0, 1e12), max_size=30))
def test_the_top_class_exists_and_changes_are_reported(samples: list[float | None]) -> None:
    classes, before = LinkClasses(11), 0
    for sample in samples:
        assert classes.sample(sample) == (classes.top != before)
        before = classes.top
        assert 0 <= before < 11


@given(st.lists(st.tuples(st.integers(0, 10), st.floats(0, 10)), unique_by=lambda item: item[0]), st.floats(0, 1e12))
def test_the_fastest_class_is_the_least_sum(delays: list[tuple[int, float]], size: float) -> None:
    chosen = fastest(delays, size)
    if chosen is None:
        assert not delays
    else:
        assert all(dict(delays)[chosen] + size / W(chosen) <= delay + size / W(k) for k, delay in delays)


def test_equals_are_settled_by_the_lower_class() -> None:
    assert fastest([(3, 1.0), (1, 1.0), (2, 1.0)], 0) == 1
