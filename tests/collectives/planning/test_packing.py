"""How much each tree gets: the linear program, and cuts that come out even."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.planning.candidates import cut
from ictp2p.collectives.planning.packing import Packing, pack

BEST = 2e-4
"""How far a total may be from the best: columns are worth up to half as much more than they are."""


@given(
    st.lists(st.floats(0, 5), min_size=1, max_size=7).filter(sum),
    st.integers(0, 10_000),
    st.integers(1, 8),
    st.integers(1, 9),
)
def test_a_cut_is_exact_and_in_proportion(parts: list[float], elements: int, line: int, block: int) -> None:
    ends = cut(np.array(parts), elements, line * block, block)
    assert ends[0] == 0
    assert ends[-1] == elements
    assert ends == sorted(ends)
    assert all(end % block == 0 for end in ends[:-1] if end < elements)
    exact = np.array(parts) / sum(parts) * elements
    assert (abs(np.diff(ends) - exact) <= 2 * line * block + 1).all()


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_the_linear_program_meets_its_dual_bound(seed: int) -> None:
    """Found at once or column by column, it is the best vertex's total; and its own prices prove it."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 7)), int(rng.integers(1, 7))
    table = rng.uniform(0, 1, (rows, columns)) * (rng.random((rows, columns)) < 0.7)
    table[rng.integers(0, rows, columns), np.arange(columns)] += 0.5
    capacity = rng.uniform(0.5, 2, rows)
    rates = pack(table, capacity)
    assert (rates >= 0).all()
    assert (table @ rates <= capacity * (1 + 1e-5)).all()
    best = max(_vertices(table, capacity))
    assert rates.sum() == pytest.approx(best, rel=BEST)
    growing = Packing(capacity)
    for column in range(columns):
        growing.add(table[:, column : column + 1])
    assert growing.rates().sum() == pytest.approx(best, rel=BEST)
    prices = growing.prices()
    assert (prices @ table >= 1 - 1e-5).all(), "a column would gain"
    assert prices @ capacity == pytest.approx(best, rel=BEST)


def test_a_program_that_is_stopped_overloads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds in its middle may be far too much; then an even division may be better."""
    rng = np.random.default_rng(1)
    table, capacity = rng.uniform(0, 1, (40, 20)), rng.uniform(0.5, 2, 40)
    even = 20 / float((table.sum(axis=1) / capacity).max())
    best = pack(table, capacity).sum()
    monkeypatch.setattr("ictp2p.collectives.planning.packing.Packing.exhausted", property(_after(3000)))
    stopped = pack(table, capacity)
    assert (table @ stopped <= capacity * (1 + 1e-5)).all()
    assert even * (1 - 1e-9) <= stopped.sum() < best


def _after(work: int) -> Callable[[Packing], bool]:
    return lambda packing: packing.work >= work


def test_what_is_no_number_ends_at_once() -> None:
    """No comparison holds of it, so it seemed to gain; and as nothing changed by that, it was exchanged for ever."""
    packing = Packing(np.array([1e-320, 1.0, 1.0, 1.0]))  # so little that the others are without end beside it
    with np.errstate(all="ignore"):
        packing.add(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
    assert packing.work < 100


def _vertices(table: np.ndarray, capacity: np.ndarray) -> list[float]:
    """List the totals of all feasible vertices of the polytope, by brute force."""
    rows, columns = table.shape
    constraints = np.vstack([table, -np.eye(columns)])
    limits = np.concatenate([capacity, np.zeros(columns)])
    totals = [0.0]
    for tight in itertools.combinations(range(rows + columns), columns):
        matrix = constraints[list(tight)]
        if abs(np.linalg.det(matrix)) > 1e-9:
            point = np.linalg.solve(matrix, limits[list(tight)])
            if (constraints @ point <= limits + 1e-9).all():
                totals.append(float(point.sum()))
    return totals
