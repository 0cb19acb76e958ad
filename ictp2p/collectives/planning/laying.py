"""Trees laid one after another so that whatever limits fills alike: for networks in which hundreds of resources do.

Where clusters lie in regions with a link of its own for each pair between them, a plan at its bound uses most of these
links at once. A linear program finds that out too late: each of its steps costs as many entries as there are trees
times links that bind. So trees are laid here without one. Each takes the cheapest edges (`schedules.arborescence`), a
resource being the dearer the fuller it will be, steeply: so the fullest ones count, as in what is to be minimized (the
prices of multiplicative weights; Plotkin, Shmoys, Tardos 1995). The heavy trees come first, as stones before sand
(`levelling`). A program then only divides the vector among these few (`packing`).

Whatever the trees, everybody has to send and to receive the whole vector once. So access lines are priced as if all
that is still to come lay on them already: who has hardly more than it needs is spared the rest.

The cheapest trees are deep, a chain of thirty hops among 64 participants, and cross an ocean as often as that is cheap.
Where a vector is short for such ways they are laid within a radius (`Near`, `schedules.radius`) instead. Laying each of
them again, with all others in place, made them worse: the heavy ones then fit nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.arborescence import cheapest
from ictp2p.collectives.planning.schedules.radius import eccentricities, within
from ictp2p.collectives.planning.schedules.trees import Matrix, Tree
from ictp2p.collectives.planning.topology import Topology

_COUNTS = ((32, 80), (48, 56), (64, 48))
"""Up to how many participants how many trees are laid; beyond, the last. Among 32 of six regions 40 trees were up to
1.05 times the bound once they were divided, and 48 at it. With 160 the program over them is out of reach."""
_SPREAD = 16.0
"""How many times heavier the first tree is than the last. With 8 networks of pairs came within 1.04 of their bound, and
within 1.02 with 16."""
STEEPNESS = 64
"""With which power of how full a resource will be its price rises. Pairs of 24 were laid to 1.05 times their bound with
32, and to 1.03 times it with 64."""
_HIGHEST = 1e4
"""Resources filled so many times above the level are all alike."""


@dataclass(frozen=True, slots=True)
class Near:
    """How far everybody may be from the root of a tree."""

    ways: Matrix
    """Seconds over each edge, infinite where there is none."""
    radius: float
    """Seconds from the root to anybody, and from anybody to the root, at most."""

    def wider(self, times: float) -> Near:
        """Give so many times the radius."""
        return replace(self, radius=times * self.radius)

    def roots(self) -> npt.NDArray[np.bool_]:
        """Say who can be a root."""
        return eccentricities(self.ways) <= self.radius


class Laid(NamedTuple):
    """Trees, the heaviest first, and the part of the vector that each carries."""

    trees: tuple[Tree, ...]
    parts: Matrix
    """Falling, and in all 1."""
    near: Near | None
    """How far everybody is from their roots at most."""


def lay(topology: Topology, level: float, near: Near | None = None) -> Laid | None:
    """Lay trees; None if not everybody reaches everybody.

    Args:
        topology: what limits.
        level: seconds per byte that are needed at least.
        near: how far everybody may be from a root; None: as far as is cheap.
    """
    count = next((count for most, count in _COUNTS if topology.size <= most), _COUNTS[-1][1])
    parts = np.geomspace(_SPREAD, 1.0, count)
    parts /= parts.sum()
    resources = _Resources(topology, level, near)
    laid = []
    for part in parts.tolist():
        tree = resources.lay(part)
        if tree is None:
            return None
        laid.append(tree)
    return Laid(tuple(laid), parts, near)


class _Resources:
    """What lies on each resource, in parts of the vector: of the trees so far, and on access lines in any case."""

    def __init__(self, topology: Topology, level: float, near: Near | None) -> None:
        self._topology, self._near = topology, near
        self._able = np.ones(topology.size, dtype=bool) if near is None else near.roots()
        """Who can be a root."""
        limits = np.isfinite(topology.capacity) & (topology.capacity > 0)
        self._inverse = np.divide(1.0, topology.capacity, out=np.zeros(len(limits)), where=limits)
        self._filled = self._inverse / level
        self._load = np.zeros(len(limits))
        self._load[topology.lines] = 1.0

    def lay(self, part: float) -> Tree | None:
        """Lay a tree that carries `part` of the vector."""
        self._load[self._topology.lines] -= part
        downward = self._edges(part)
        root = self._root(downward)
        down = self._led(downward, root)
        if down is None:
            return None
        self._carry([(parent, node) for node, parent in enumerate(down) if parent != NO_PARENT], part)
        up = self._led(self._edges(part).T, root, upward=True)
        if up is None:
            return None
        self._carry([(node, parent) for node, parent in enumerate(up) if parent != NO_PARENT], part)
        return Tree(root, up, down)

    def _led(self, price: Matrix, root: int, *, upward: bool = False) -> tuple[int, ...] | None:
        """Lead from the root to everybody, or, where prices are those of edges back, from everybody: the parents."""
        if self._near is None:
            found = cheapest(price, root)
            return found and found[0]
        ways = self._near.ways
        return within(price, ways.T if upward else ways, root, self._near.radius)

    def _edges(self, part: float) -> Matrix:
        """Price each edge by how full it would get."""
        full = np.minimum((self._load + part) * self._filled, _HIGHEST)
        return self._topology.prices(full**STEEPNESS * self._inverse)

    def _root(self, edges: Matrix) -> int:
        """Choose who is dearest to lead to, and from: the root is the only one that needs neither."""
        edges = edges.copy()
        np.fill_diagonal(edges, np.inf)
        return int(np.where(self._able, edges.min(axis=0) + edges.min(axis=1), -1.0).argmax())

    def _carry(self, edges: Sequence[tuple[int, int]], part: float) -> None:
        source, target = np.array(edges).T
        np.add.at(self._load, self._topology.uses[source * self._topology.size + target], part)
