"""Trees of two hops that fill all links alike, for networks in which each pair has a bandwidth of its own.

Where nothing but links limits, nearly all of them are full at the optimum. That trees can fill them follows from
Edmonds' theorem on packing arborescences, but exactly it takes thousands, and a linear program over as many links that
all bind is out of reach. To come near takes fewer: among 64 participants a link is used by five trees of 160, and trees
of different weights fit together as stones and sand do. So the heavy ones are laid first, and each participant takes
the link that is then filled least for its capacity. For one participant's links that is the divisor method of D'Hondt
(1878), which makes the highest ratio of load to capacity as low as can be.

A tree has its root, hubs, which are linked to it, and the others, each linked to a hub or to the root. So a slow link
to the root is avoided, and any link is in reach of many trees. Hubs are those with the best links to the root; all
numbers of them are tried at once.

What a participant has to send in later trees it has to send over its own links, and what it has to receive likewise. So
that others do not take these from it, they are priced as if that were laid on them already, evenly. Without this, a
participant with hardly more capacity than it needs held up all: the worst of six networks each of 16, 20, 24 and 32
took 1.14 to 1.24 times the bound, and take 1.02 to 1.05 times with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.trees import Matrix, Tree

COUNTS = (160, 32, 8)
"""How many trees are worth trying. 160 come within 1.08 of the bound among 16 to 64 participants, 240 hardly nearer,
and each is a share with chunks of its own; few have less to wait for, which counts when tensors are small."""
_SPREAD = 16.0
"""How many times heavier the first tree is than the last. With equal ones 160 trees among 64 took 1.2 times the bound;
with 256 they took 1.14, the first ones being too heavy for most links. The last one must not be dust to the planner."""
_STEEPNESS = 8
_HIGHEST = 1e6
"""Links filled so many times above the level are as bad as missing ones."""


class Levelled(NamedTuple):
    """Trees, and the part of the vector that each is meant to carry."""

    trees: tuple[Tree, ...]
    parts: Matrix
    """Falling, and in all 1."""


def least(width: Matrix) -> float:
    """Bound the seconds per byte by what each participant's links, and all of them, can carry.

    Infinite if somebody has no link in or out.
    """
    narrowest = float(min(width.sum(axis=0).min(), width.sum(axis=1).min()))
    return max(1 / narrowest, 2 * (len(width) - 1) / float(width.sum())) if narrowest > 0 else float("inf")


def trees(width: Matrix, count: int) -> Levelled | None:
    """Lay `count` trees over links; None if two hops do not lead everywhere.

    Args:
        width: bytes/s from each participant to each; 0 where there is no link, and on the diagonal.
        count: of trees.
    """
    level = least(width)
    if not np.isfinite(level):
        return None
    links = _Links(width, level)
    parts = np.geomspace(_SPREAD, 1.0, count)
    parts /= parts.sum()
    left = np.append(np.cumsum(parts[:0:-1])[::-1], 0.0)
    laid = []
    for part, later in zip(parts.tolist(), left.tolist(), strict=True):
        tree = links.lay(part, later)
        if tree is None:
            return None
        laid.append(tree)
    return Levelled(tuple(laid), parts)


class _Links:
    """Links with what trees have laid on them so far, in parts of the vector."""

    def __init__(self, width: Matrix, level: float) -> None:
        self._width, self._level = width, level
        self._inverse = np.divide(1.0, width, out=np.full(width.shape, np.inf), where=width > 0)
        self._load = np.zeros(width.shape)
        self._into, self._out = 1 / width.sum(axis=0), 1 / width.sum(axis=1)[:, None]
        self._every = np.arange(len(width))
        self._others = self._every[:-1, None] >= self._every
        """Whether each in the order of links to the root (rows) is no hub, where the first so many are (columns)."""

    def lay(self, part: float, left: float) -> Tree | None:
        """Lay a tree that carries `part` of the vector, while `left` is still to come; None if there is none."""
        root = self._root(part, left)
        up = self._parents(self._upward(part, left), root)
        self._load[self._every, up] += part
        down = self._parents(self._downward(part, left).T, root)
        self._load[down, self._every] += part
        missing = (self._width[self._every, up] <= 0) | (self._width[down, self._every] <= 0)
        missing[root] = False
        up[root] = down[root] = NO_PARENT
        return None if missing.any() else Tree(root, tuple(up.tolist()), tuple(down.tolist()))

    def _upward(self, part: float, left: float) -> Matrix:
        """Price links for contributions: how full they get, with what the receiver has to receive later."""
        priced: Matrix = (self._load + part) * self._inverse + left * self._into
        return priced

    def _downward(self, part: float, left: float) -> Matrix:
        """Price links for results: how full they get, with what the sender has to send later."""
        priced: Matrix = (self._load + part) * self._inverse + left * self._out
        return priced

    def _root(self, part: float, left: float) -> int:
        """Choose who has the best links to and from half of the others."""
        half = (len(self._every) - 1) // 2
        into = np.partition(self._upward(part, left), half, axis=0)[half]
        out = np.partition(self._downward(part, left), half, axis=1)[:, half]
        return int((into + out).argmin())

    def _parents(self, price: Matrix, root: int) -> npt.NDArray[np.intp]:
        """Choose everybody's parent by the `price` of each one's link with each; the root's is the root itself.

        `best[:, n]` are the prices of all but the first `n`, if those are the hubs; steeply priced, so that the fullest
        links count.
        """
        first = price[:, root].copy()
        first[root] = -1.0
        order = first.argsort(kind="stable")
        offers = price[np.ix_(order[1:], order)]
        best = np.minimum.accumulate(offers, axis=1) / self._level
        steep = np.minimum(best, _HIGHEST) ** _STEEPNESS
        total = np.append(0.0, np.cumsum(steep[:, 0])) + (steep * self._others).sum(axis=0)
        hubs = int(total[:-1].argmin())
        parents = np.full(len(order), root)
        parents[order[1 + hubs :]] = order[offers[hubs:, : hubs + 1].argmin(axis=1)]
        return parents
