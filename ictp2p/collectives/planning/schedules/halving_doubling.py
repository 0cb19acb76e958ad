"""Recursive halving and doubling: a binomial tree per participant.

In the first step everybody sends half the vector to the one half a round away, in the next a quarter, and back again
(Rabenseifner 2004). Seen from one share that is a binomial tree around its root: the same volume as the ring's, in
2 log2(N) hops instead of 2 (N-1), and 2 log2(N) messages at the root instead of a star's 2 (N-1). It is for tensors so
small that messages count, on links that are alike.
"""

from __future__ import annotations

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.trees import Tree


def trees(size: int) -> tuple[Tree, ...]:
    """Give one binomial tree per participant."""
    return tuple(_binomial(size, root) for root in range(size))


def _binomial(size: int, root: int) -> Tree:
    """Give each participant the one as parent that its distance from the root, less its highest bit, leads to."""
    parents = [NO_PARENT] * size
    for distance in range(1, size):
        nearer = distance - (1 << distance.bit_length() - 1)
        parents[(root + distance) % size] = (root + nearer) % size
    return Tree(root, tuple(parents), tuple(parents))
