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


def downward(tree: Tree) -> Tree:
    """Give the tree without its way up: what a broadcast needs."""
    return tree._replace(reduce_parents=(NO_PARENT,) * len(tree.reduce_parents))
