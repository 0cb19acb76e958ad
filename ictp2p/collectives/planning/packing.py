"""How much each tree should carry: a packing linear program, solved in NumPy.

Let column j be a tree and `A[r, j]` the bytes it puts on resource r per byte of its share. The largest total rate at
which the columns can run side by side is max sum(y) subject to A y <= capacity, y >= 0; the vector then takes
`size / sum(y)` seconds, and column j's share is y_j / sum(y).

The simplex method, twice: zero is feasible, so the primal one needs no first phase; and it goes on from where it was
when columns are added (trees that were thought of later). Among 64 participants there are over four thousand links, of
which a few hundred bind: the others are left out until they are violated, and then the dual method goes on.

Links are often alike, so that many solutions are equally good, among which the method could wander without end. Each
capacity is therefore raised by up to a millionth, and each column's worth by up to a ten-thousandth, by an amount of
its own; so a total may be a ten-thousandth below the best. The amounts are fixed, so equal inputs give equal plans.
(With a millionth of worth as well, ten of 56 programs over trees that were laid for 13 to 20 participants wandered for
ten thousand steps, where they end after a thousand.)

The prices of the rows, its dual solution, say what a faster plan would have to save. Those of absent rows are zero.
(An interior-point method takes twenty steps instead of hundreds; but its products of matrices go to a BLAS whose
threads, beside a training job that fills all cores, were seen to wait for each other a hundred times longer.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.planning.schedules.trees import Matrix

_EPSILON = 1e-9
_TOLERANCE = 2e-6
"""By how much a row may be violated, of its capacity."""
_RAISED = 1e-6
"""By how much capacities are raised at most."""
_WORTH = 1e-4
"""By how much columns are worth more than they are at most."""
_GOLDEN = (5**0.5 - 1) / 2
_LIKELY = 2
"""Rows per column that are there from the start: those of the highest load, were all columns used alike."""
WORK = 150_000_000
"""Entries of the table that may be changed before a packing is good enough as it is: a few tenths of a second. Only
tens of participants with hundreds of links that all bind come so far."""
_ADDED = 48
"""The most rows added at a time later: the worst violated ones."""


def pack(loads: Matrix, capacity: Matrix) -> Matrix:
    """Give the rates of the columns of `loads` (resources x columns) that together maximize the total."""
    packing = Packing(capacity)
    packing.add(loads)
    if not packing.exhausted:
        return packing.rates()
    even = filled(loads, capacity, np.ones(loads.shape[1]))
    stopped = filled(loads, capacity, packing.rates())
    return stopped if stopped.sum() > even.sum() else even


def filled(loads: Matrix, capacity: Matrix, parts: Matrix) -> Matrix:
    """Give the highest rates in proportion to `parts` that no resource is overloaded by."""
    load = carried(loads, parts)
    worst = float((load[load > 0] / capacity[load > 0]).max(initial=0.0))
    return parts / worst if worst > 0 else parts


def carried(loads: Matrix, parts: Matrix) -> Matrix:
    """Give what each resource carries of columns in these parts.

    Not by BLAS, here and below: its threads spin for milliseconds after each product, on cores on which others train.
    """
    load: Matrix = np.einsum("rc,c->r", loads, parts)
    return load


class Packing:
    """A packing that grows. If it takes more than it may, it stays where it is; its rates may then be too high.

    Args:
        capacity: of each resource; infinite ones do not count.
        most: entries of the table that may be changed.
    """

    def __init__(self, capacity: Matrix, most: int = WORK) -> None:
        self._capacity = capacity
        self._scale = 1.0
        """Capacity that counts as 1; the widest: rows of at least 1 keep the tolerance meaningful."""
        self._loads = np.zeros((len(capacity), 0))
        self._rows: list[int] = []
        """The resource of each row. Its slack is variable -1 - row; column j is variable j."""
        self._table = np.zeros((1, 1))
        """Condensed: basic variables by row, free ones by column; last the right side, and the objective."""
        self._basis = np.zeros(0, np.intp)
        self._free = np.zeros(0, np.intp)
        self.most = most
        """Entries of the table that may be changed in all."""
        self.work = 0
        """Entries of the table changed so far."""

    def add(self, loads: Matrix) -> None:
        """Add columns, and maximize again.

        Args:
            loads: (resources, columns), not negative; each loads something of finite capacity, none of zero capacity.
        """
        first, self.work = self._loads.shape[1], self.work + loads.size
        counts = np.isfinite(self._capacity) & (self._capacity > 0)
        if not first:
            self._scale = float(self._capacity[counts & (loads > 0).any(axis=1)].max())
        relative = loads * np.divide(self._scale, self._capacity, out=np.zeros(len(counts)), where=counts)[:, None]
        self._loads = np.concatenate([self._loads, relative], axis=1)
        self._add_columns(relative, first)
        usual = self._loads.sum(axis=1)
        highest = np.argsort(-usual, kind="stable")[: _LIKELY * self._loads.shape[1]]
        wanted = {*relative.argmax(axis=0).tolist(), *highest[usual[highest] > 0].tolist()}
        self._add_rows(sorted(wanted - set(self._rows)))
        self._maximize()

    @property
    def exhausted(self) -> bool:
        """Whether it has taken all that it may."""
        return self.work >= self.most

    def rates(self) -> Matrix:
        """Give the bytes/s of each column."""
        return self._values() * self._scale

    def prices(self) -> Matrix:
        """Price each resource so that no column costs less than 1, and all capacity is worth the total rate."""
        prices = np.zeros(len(self._capacity))
        slack = np.flatnonzero(self._free < 0)
        resources = np.array(self._rows, dtype=np.intp)[-1 - self._free[slack]]
        prices[resources] = np.maximum(self._table[-1, slack], 0.0) * self._scale / self._capacity[resources]
        return prices

    def _values(self) -> Matrix:
        values = np.zeros(self._loads.shape[1])
        ours = self._basis >= 0
        values[self._basis[ours]] = np.maximum(self._table[:-1, -1][ours], 0.0)
        return values

    def _maximize(self) -> None:
        self._dual()
        while not self.exhausted:
            self._primal()
            values = self._values()
            used = (self._loads[:, values > 0] * values[values > 0]).sum(axis=1)
            used[self._rows] = 0.0
            over = np.flatnonzero(used > 1 + _TOLERANCE)
            if not len(over):
                return
            self._add_rows(np.sort(over[np.argsort(-used[over], kind="stable")[:_ADDED]]).tolist())
            self._dual()

    def _add_columns(self, loads: Matrix, first: int) -> None:
        """Express new columns by the basic variables: the inverse of the basis stands in the columns of the slacks."""
        count = loads.shape[1]
        ours = loads[self._rows]
        columns = np.zeros((len(self._basis) + 1, count))
        columns[-1] = -_raised(np.arange(first, first + count), _WORTH)
        slack = np.flatnonzero(self._free < 0)
        columns += np.einsum("rs,sc->rc", self._table[:, slack], ours[-1 - self._free[slack]])
        basic = np.flatnonzero(self._basis < 0)
        columns[basic] += ours[-1 - self._basis[basic]]
        self._table = np.concatenate([self._table[:, :-1], columns, self._table[:, -1:]], axis=1)
        self._free = np.concatenate([self._free, np.arange(first, first + count)])

    def _add_rows(self, resources: list[int]) -> None:
        """Express new rows by the free variables; their slacks become basic, below zero where they are violated."""
        if not resources:
            return
        loads = self._loads[resources]
        rows = np.zeros((len(resources), self._table.shape[1]))
        rows[:, -1] = _raised(np.array(resources), _RAISED)
        free = np.flatnonzero(self._free >= 0)
        rows[:, free] = loads[:, self._free[free]]
        basic = np.flatnonzero(self._basis >= 0)
        rows -= np.einsum("rb,bc->rc", loads[:, self._basis[basic]], self._table[basic])
        self._table = np.concatenate([self._table[:-1], rows, self._table[-1:]])
        number = np.arange(len(self._rows), len(self._rows) + len(resources))
        self._basis = np.concatenate([self._basis, -1 - number])
        self._rows += resources

    def _primal(self) -> None:
        """Improve while a free variable gains."""
        while not self.exhausted:
            entering = int(self._table[-1, :-1].argmin())
            if not self._table[-1, entering] < -_EPSILON:  # nor where it is no number
                return
            leaving = _first_to_bind(self._table[:-1, -1], self._table[:-1, entering])
            if leaving is None:
                return
            self._pivot(leaving, entering)

    def _dual(self) -> None:
        """Restore rows that are violated, keeping all costs at zero or above."""
        while not self.exhausted:
            leaving = int(self._table[:-1, -1].argmin())
            if not self._table[leaving, -1] < -_EPSILON:
                return
            entering = _first_to_bind(self._table[-1, :-1], -self._table[leaving, :-1])
            if entering is None:
                return
            self._pivot(leaving, entering)

    def _pivot(self, row: int, column: int) -> None:
        """Exchange a basic and a free variable."""
        table = self._table
        pivot = table[row, column]
        table[row] /= pivot
        table[row, column] = 1.0 / pivot
        factors = table[:, column].copy()
        factors[row] = 0.0
        others = np.flatnonzero(np.abs(factors) > 1e-14)
        table[others, column] = 0.0
        table[others] -= factors[others, None] * table[row]
        self._basis[row], self._free[column] = self._free[column], self._basis[row]
        self.work += (1 + len(others)) * table.shape[1]


def _first_to_bind(values: Matrix, slopes: Matrix) -> int | None:
    """Choose the least ratio of value to positive slope; among equals the steepest, for accuracy."""
    able = np.flatnonzero(slopes > _EPSILON)
    if not len(able):
        return None
    ratios = np.maximum(values[able], 0.0) / slopes[able]
    tied = able[ratios <= ratios.min() + _EPSILON]
    return int(tied[slopes[tied].argmax()])


def _raised(numbers: npt.NDArray[np.intp], most: float) -> Matrix:
    """Give 1 and up to `most` more, differently for each number."""
    return np.asarray(1 + most * (numbers * _GOLDEN % 1), dtype=np.float64)
