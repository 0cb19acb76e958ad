"""Lines that hold each other back take longer than their bytes need, by no more than what is divided unevenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ictp2p.collectives.planning.crowding import crowded

LINES = st.floats(1e6, 1e9)


def fluid(carried: np.ndarray, up: np.ndarray, down: np.ndarray) -> float:
    return float(max((carried.sum(axis=1) / up).max(), (carried.sum(axis=0) / down).max()))


@st.composite
def loads(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = draw(st.integers(2, 6))
    carried = draw(npst.arrays(np.float64, (size, size), elements=st.just(0.0) | st.floats(1.0, 1e9)))
    np.fill_diagonal(carried, 0.0)
    up, down = (draw(npst.arrays(np.float64, size, elements=LINES)) for _ in "ud")
    return carried, up, down


@given(loads())
def test_a_plan_never_beats_its_bytes_nor_takes_twice_as_long(load: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    least = fluid(*load)
    assert least * (1 - 1e-9) <= crowded(*load) <= 2 * least


@given(st.permutations(range(5)), npst.arrays(np.float64, 5, elements=st.floats(1.0, 1e9)), LINES)
def test_a_line_with_one_connection_each_way_waits_for_nobody(order: list[int], sizes: np.ndarray, line: float) -> None:
    carried = np.zeros((5, 5))
    carried[order, np.roll(order, 1)] = sizes
    lines = np.full(5, line)
    assert crowded(carried, lines, lines) == pytest.approx(fluid(carried, lines, lines))


@given(st.integers(2, 8), st.floats(1.0, 1e9), LINES)
def test_nor_does_one_whose_connections_carry_as_much_each(size: int, each: float, line: float) -> None:
    carried = each * (1 - np.eye(size))
    lines = np.full(size, line)
    assert crowded(carried, lines, lines) == pytest.approx(fluid(carried, lines, lines))


def test_nor_the_only_line_that_is_full() -> None:
    carried = np.array([[0, 9, 1], [0, 0, 0], [0, 0, 0]]) * 1e6
    assert crowded(carried, np.full(3, 1e6), np.full(3, 2e7)) == pytest.approx(10.0)


def test_full_lines_that_divide_unevenly_hold_each_other_back() -> None:
    carried = np.array([[0, 9, 1], [9, 0, 1], [1, 1, 0]]) * 1e6
    lines = np.array([1e6, 1e6, 2e5])
    assert crowded(carried, lines, lines) == pytest.approx(10.0 * 1.4)


def test_lines_without_a_limit_take_no_time() -> None:
    assert crowded(np.ones((3, 3)), np.full(3, np.inf), np.full(3, np.inf)) == 0.0
