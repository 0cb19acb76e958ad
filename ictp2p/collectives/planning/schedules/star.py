"""Direct reduce-scatter and all-gather: every participant is the root of one share, with all others around it.

Two hops whatever the number of participants, and each sum is made in one place from the contributions themselves, so a
low-bit codec rounds once. With shares weighted by capacity it is optimal wherever each participant's own access link is
what limits it (the hose model; BytePS, OSDI 2020, has the analogous optimum for GPU and CPU hosts).
"""

from __future__ import annotations

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.trees import Tree


def trees(size: int) -> tuple[Tree, ...]:
    """Give one star per participant."""
    return tuple(star(size, root) for root in range(size))


def star(size: int, root: int) -> Tree:
    """Give the star around `root`."""
    parents = tuple(NO_PARENT if node == root else root for node in range(size))
    return Tree(root, parents, parents)
