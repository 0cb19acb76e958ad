"""A pair of trees with one root, and what sending a byte along it costs every link and participant."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.plan import NO_PARENT

Matrix = npt.NDArray[np.float64]


class Tree(NamedTuple):
    """Where contributions climb and where the result descends; parents as in `plan.Share`."""

    root: int
    reduce_parents: tuple[int, ...]
    broadcast_parents: tuple[int, ...]

    def edges(self) -> list[tuple[int, int]]:
        """List the directed edges in use, one entry per element sent over them."""
        up = [(node, parent) for node, parent in enumerate(self.reduce_parents) if parent != NO_PARENT]
        down = [(parent, node) for node, parent in enumerate(self.broadcast_parents) if parent != NO_PARENT]
        return up + down

    def load(self) -> Matrix:
        """Count the elements sent per element of the share: `load[source, target]`."""
        load = np.zeros((len(self.reduce_parents), len(self.reduce_parents)))
        for edge in self.edges():
            load[edge] += 1
        return load

    def depths(self) -> tuple[int, int]:
        """Give the longest way up, and the longest way down, in hops."""
        return _depth(self.reduce_parents), _depth(self.broadcast_parents)

    def longest(self, delay: Matrix) -> float:
        """Give the seconds of the slowest way up plus the slowest way down, by the `delay` of each edge."""
        up = max(_path(self.reduce_parents, node, delay) for node in range(len(self.reduce_parents)))
        down = max(_path(self.broadcast_parents, node, delay.T) for node in range(len(self.broadcast_parents)))
        return up + down


def downward(tree: Tree) -> Tree:
    """Give the tree without its way up: what a broadcast needs."""
    return tree._replace(reduce_parents=(NO_PARENT,) * len(tree.reduce_parents))


def _path(parents: tuple[int, ...], node: int, delay: Matrix) -> float:
    total = 0.0
    while parents[node] != NO_PARENT:
        total += float(delay[node, parents[node]])
        node = parents[node]
    return total


def _depth(parents: tuple[int, ...]) -> int:
    hops = np.ones((len(parents), len(parents)))
    return int(max(_path(parents, node, hops) for node in range(len(parents))))
