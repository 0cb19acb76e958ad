"""The cheapest tree that leads from a root to everybody: Chu and Liu's algorithm (1965), Edmonds' (1967).

Each node takes its cheapest incoming edge; where these form a cycle, the cycle is contracted to one node, whose
incoming edges cost what they cost more than the cycle's own edge into the same node. It prices new trees for the
planner and proves its bound: no tree costs less.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.trees import Matrix


def cheapest(price: Matrix, root: int) -> tuple[tuple[int, ...], float] | None:
    """Give the parents of the cheapest tree and its cost; None if the root does not reach everybody.

    Args:
        price: of each edge `[source, target]`, not negative; infinite where there is none.
        root: where the tree begins.
    """
    parents = _parents(_without_returns(price, root), root)
    if parents is None:
        return None
    nodes = np.flatnonzero(np.arange(len(price)) != root)
    cost = float(price[parents[nodes], nodes].sum())
    parents[root] = NO_PARENT
    return tuple(int(parent) for parent in parents), cost


def cheapest_anywhere(price: Matrix) -> float:
    """Give the cost of the cheapest tree of all, whatever its root; infinite if nobody reaches everybody.

    One more node leads to everybody, at such a price that the cheapest tree from it takes one of these edges only.

    Args:
        price: as `cheapest`.
    """
    size = len(price)
    dear = (size + 1) * float(price[np.isfinite(price)].max(initial=1.0))
    wider = np.full((size + 1, size + 1), np.inf)
    wider[:size, :size], wider[size, :size] = price, dear
    found = cheapest(wider, size)
    assert found is not None, "the node that was added reaches everybody"
    return found[1] - dear if found[0].count(size) == 1 else np.inf


def _without_returns(price: Matrix, root: int) -> Matrix:
    price = price.copy()
    np.fill_diagonal(price, np.inf)
    price[:, root] = np.inf
    return price


def _parents(price: Matrix, root: int) -> npt.NDArray[np.intp] | None:
    parents: npt.NDArray[np.intp] = price.argmin(axis=0)
    parents[root] = root
    best = price[parents, np.arange(len(price))]
    best[root] = 0.0
    if not np.isfinite(best).all():
        return None
    cycle = _cycle(parents, root)
    if cycle is None:
        return parents
    kept = np.ones(len(price), dtype=bool)
    kept[cycle] = False
    outside = np.flatnonzero(kept)
    onward = price[outside]
    entering = onward[:, cycle] - best[cycle]
    leaving = price[cycle][:, outside]
    smaller = np.full((len(outside) + 1, len(outside) + 1), np.inf)
    smaller[:-1, :-1] = onward[:, outside]
    smaller[:-1, -1] = entering.min(axis=1)
    smaller[-1, :-1] = leaving.min(axis=0)
    above = _parents(smaller, int(np.searchsorted(outside, root)))
    if above is None:
        return None
    apart = above[:-1] < len(outside)
    parents[outside] = cycle[leaving.argmin(axis=0)]
    parents[outside[apart]] = outside[above[:-1][apart]]
    parents[cycle[entering[above[-1]].argmin()]] = outside[above[-1]]
    parents[root] = root
    return parents


def _cycle(parents: npt.NDArray[np.intp], root: int) -> npt.NDArray[np.intp] | None:
    """Find the first cycle of the walk from child to parent, its nodes ascending."""
    known = {root}
    for start in range(len(parents)):
        path: dict[int, None] = {}
        node = start
        while node not in known and node not in path:
            path[node] = None
            node = int(parents[node])
        if node in path:
            nodes = list(path)
            return np.sort(np.array(nodes[nodes.index(node) :], dtype=np.intp))
        known.update(path)
    return None
