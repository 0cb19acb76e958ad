"""A pair of trees with one root, and what sending a byte along it costs every link and participant."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.plan import NO_PARENT

Matrix = npt.NDArray[np.float64]


class Cost(NamedTuple):
    """Bytes on the wire per byte of a share, for each kind of chunk: what a codec leaves of them."""

    contribution: float = 1.0
    partial: float = 1.0
    result: float = 1.0


WHOLE = Cost()
"""What no codec leaves: everything."""


class Tree(NamedTuple):
    """Where contributions climb and where the result descends; parents as in `plan.Share`."""

    root: int
    reduce_parents: tuple[int, ...]
    broadcast_parents: tuple[int, ...]

    def edges(self) -> list[tuple[int, int]]:
        """List the directed edges in use, one entry per element sent over them: all upward ones, then all downward."""
        up = [(node, parent) for node, parent in enumerate(self.reduce_parents) if parent != NO_PARENT]
        down = [(parent, node) for node, parent in enumerate(self.broadcast_parents) if parent != NO_PARENT]
        return up + down

    def costs(self, cost: Cost) -> list[float]:
        """Give what each of `edges` carries per byte of the share."""
        inner = set(self.reduce_parents)
        up = [
            cost.partial if node in inner else cost.contribution
            for node, parent in enumerate(self.reduce_parents)
            if parent != NO_PARENT
        ]
        return up + [cost.result] * (len(self.broadcast_parents) - self.broadcast_parents.count(NO_PARENT))

    def messages(self) -> list[int]:
        """Count the chunks that each participant sends and receives per chunk of the share."""
        ends = [end for edge in self.edges() for end in edge]
        counts: list[int] = np.bincount(ends, minlength=len(self.reduce_parents)).tolist()
        return counts

    def depths(self) -> tuple[int, int]:
        """Give the longest way up, and the longest way down, in hops."""
        hops = np.ones((len(self.reduce_parents), len(self.reduce_parents)))
        return int(_deepest(self.reduce_parents, hops)), int(_deepest(self.broadcast_parents, hops))

    def longest(self, delay: Matrix) -> float:
        """Give the seconds of the slowest way up plus the slowest way down, by the `delay` of each edge."""
        return _deepest(self.reduce_parents, delay) + _deepest(self.broadcast_parents, delay.T)


def downward(tree: Tree) -> Tree:
    """Give the tree without its way up: what a broadcast needs."""
    return tree._replace(reduce_parents=(NO_PARENT,) * len(tree.reduce_parents))


def _deepest(parents: tuple[int, ...], delay: Matrix) -> float:
    """Give the longest way to the root, each node's way looked up once."""
    ways: dict[int, float] = {}
    for start in range(len(parents)):
        path, node = [], start
        while parents[node] != NO_PARENT and node not in ways:
            path.append(node)
            node = parents[node]
        way = ways.get(node, 0.0)
        for earlier in reversed(path):
            way += float(delay[earlier, parents[earlier]])
            ways[earlier] = way
    return max(ways.values(), default=0.0)
