"""How much each tree should carry: a packing linear program, solved exactly in NumPy.

Let column j be a tree and `A[r, j]` the bytes it puts on resource r per byte of its share. The largest total rate at
which the columns can run side by side is max sum(y) subject to A y <= capacity, y >= 0; the vector then takes
`size / sum(y)` seconds, and column j's share is y_j / sum(y). Zero is feasible, so the simplex method needs no first
phase. Bland's rule after a stall keeps it from cycling; ties go to the lowest index, so equal inputs give equal plans.
"""

from __future__ import annotations

import numpy as np

from ictp2p.collectives.schedules.trees import Matrix

_EPSILON = 1e-9


def pack(loads: Matrix, capacity: Matrix) -> Matrix:
    """Give the rate of each column of `loads` (resources x columns) that together maximize the total.

    Args:
        loads: not negative; every column loads at least one resource.
        capacity: positive, one per resource; infinite ones do not count.
    """
    bounded = np.isfinite(capacity) & (loads > 0).any(axis=1)
    widest = float(capacity[bounded].max())  # rows of at least 1 keep the tolerance meaningful
    table = _tableau(loads[bounded] / (capacity[bounded, None] / widest))
    rows, columns = table.shape[0] - 1, table.shape[1] - 1
    basis = np.arange(columns, columns + rows)
    free = np.arange(columns)
    degenerate = 0
    for _ in range(50 * (rows + columns)):
        entering = _entering(table[-1, :-1], free, bland=degenerate > rows)
        if entering is None:
            break
        leaving = _leaving(table, basis, entering)
        degenerate = degenerate + 1 if table[leaving, -1] < _EPSILON else 0
        _pivot(table, leaving, entering)
        basis[leaving], free[entering] = free[entering], basis[leaving]
    rates = np.zeros(columns + rows)
    rates[basis] = table[:-1, -1]
    return np.maximum(rates[:columns], 0.0) * widest


def _tableau(loads: Matrix) -> Matrix:
    table = np.zeros((loads.shape[0] + 1, loads.shape[1] + 1))
    table[:-1, :-1] = loads
    table[:-1, -1] = 1.0
    table[-1, :-1] = -1.0
    return table


def _entering(costs: Matrix, free: Matrix, *, bland: bool) -> int | None:
    """Choose the column that gains most, or by Bland's rule the lowest variable that gains at all."""
    if bland:
        gaining = np.flatnonzero(costs < -_EPSILON)
        return int(gaining[np.argmin(free[gaining])]) if len(gaining) else None
    best = int(np.argmin(costs))
    return best if costs[best] < -_EPSILON else None


def _leaving(table: Matrix, basis: Matrix, entering: int) -> int:
    """Choose the row that binds first; among equals the lowest variable."""
    column = table[:-1, entering]
    positive = column > _EPSILON
    ratios = np.where(positive, table[:-1, -1] / np.where(positive, column, 1.0), np.inf)
    tied = np.flatnonzero(ratios <= ratios.min() + _EPSILON * max(1.0, ratios.min()))
    return int(tied[np.argmin(basis[tied])])


def _pivot(table: Matrix, row: int, column: int) -> None:
    """Exchange a basic and a free variable in the condensed tableau."""
    pivot = table[row, column]
    table[row] /= pivot
    table[row, column] = 1.0 / pivot
    for block in (slice(0, row), slice(row + 1, None)):
        factors = table[block, column].copy()
        table[block, column] = 0.0
        table[block] -= np.outer(factors, table[row])
