"""Several trees over the same participants as arrays, so that what is asked of all of them is asked once.

The planner asks of hundreds of trees what they load and how long their ways are; tree by tree that was most of its time
among 64 participants. What each figure means is said where one tree has it (`trees.Tree`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.trees import Cost, Matrix, Tree

Numbers = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees, and their edges: an entry for each element sent over one, all upward ones, then all downward ones."""

    up: Numbers
    """(trees, participants): parents on the way up, `NO_PARENT` at the root."""
    down: Numbers
    """(trees, participants): parents on the way down."""
    tree: Numbers
    """The tree of each edge."""
    source: Numbers
    target: Numbers
    inward: Numbers
    """(trees, participants): from how many each gets contributions."""

    @property
    def count(self) -> int:
        """How many trees there are."""
        return len(self.up)

    @property
    def size(self) -> int:
        """How many participants there are."""
        return int(self.up.shape[1])

    @property
    def edges(self) -> Numbers:
        """The number of each edge among all pairs: `source * size + target`."""
        return self.source * self.size + self.target

    def costs(self, cost: Cost) -> Matrix:
        """Give what each edge carries per byte of its share."""
        rising = int((self.up != NO_PARENT).sum())
        costs = np.full(len(self.tree), cost.result)
        inner = self.inward[self.tree[:rising], self.source[:rising]] > 0
        costs[:rising] = np.where(inner, cost.partial, cost.contribution)
        return costs

    def messages(self) -> Numbers:
        """Count the chunks that each participant (columns) sends and receives per chunk of each share (rows)."""
        ends = [self.tree * self.size + end for end in (self.source, self.target)]
        counts = np.bincount(np.concatenate(ends), minlength=self.count * self.size)
        return counts.reshape(self.count, self.size)

    def longest(self, delay: Matrix) -> Matrix:
        """Give per tree the seconds of its slowest way up plus its slowest way down, by the `delay` of each edge."""
        return _deepest(self.up, delay) + _deepest(self.down, delay.T)


def forest(trees: Sequence[Tree]) -> Forest:
    """Stack trees, of which there is at least one."""
    up, down = np.array([tree.reduce_parents for tree in trees]), np.array([tree.broadcast_parents for tree in trees])
    (rising, giver), (falling, taker) = np.nonzero(up != NO_PARENT), np.nonzero(down != NO_PARENT)
    adder = up[rising, giver]
    inward = np.bincount(rising * up.shape[1] + adder, minlength=up.size).reshape(up.shape)
    source, target = np.concatenate([giver, down[falling, taker]]), np.concatenate([adder, taker])
    return Forest(up, down, np.concatenate([rising, falling]), source, target, inward)


def _deepest(parents: Numbers, delay: Matrix) -> Matrix:
    """Give the longest way to each root; everybody's way grows by doubled steps: to the parent, to its parent..."""
    tree, every = np.arange(len(parents))[:, None], np.arange(parents.shape[1])
    above = np.where(parents == NO_PARENT, every, parents)
    ways = np.where(parents == NO_PARENT, 0.0, delay[every, above])
    for _ in range(parents.shape[1].bit_length()):
        further = above[tree, above]
        if (further == above).all():
            break
        ways += ways[tree, above]
        above = further
    longest: Matrix = ways.max(axis=1)
    return longest
