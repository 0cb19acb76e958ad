"""Lower bounds: what no all-reduce can beat on given links, however clever. They certify a plan's quality.

All are for the fluid model: every participant holds S bytes, can send at `up` and receive at `down`, and each directed
link carries at most its width; nothing computes inside the network.

- *Node*: everybody must send S bytes at least once, and receive S.
- *Volume*: each element needs 2 (N-1) transfers between participants (the directed gossip number).
- *Partition*: merge participants into k groups; groups behave as participants do: each sends and receives S, and
  2 (k-1) S cross the borders. Evaluated along the single-linkage dendrogram of the links, which finds the regions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ictp2p.collectives.schedules.trees import Matrix


@dataclass(frozen=True, slots=True)
class Capacities:
    """Bytes per second: `width[source, target]` of each link (0: none), `up` and `down` of each participant."""

    width: Matrix
    up: Matrix
    down: Matrix

    def out(self) -> Matrix:
        """What each participant can send at most."""
        most: Matrix = np.minimum(self.up, self.width.sum(axis=1))
        return most

    def into(self) -> Matrix:
        """What each participant can receive at most."""
        most: Matrix = np.minimum(self.down, self.width.sum(axis=0))
        return most


def lower_bound(capacities: Capacities, size: float) -> float:
    """Give the largest known lower bound in seconds on all-reducing `size` bytes."""
    if len(capacities.up) < 2 or not size:
        return 0.0
    return max(partition_bound(capacities, size, groups) for groups in linkage(capacities.width))


def hose_optimum(capacity: Matrix, size: float) -> float:
    """Give the optimum where participants send and receive at `capacity` and no link is narrower (closed form)."""
    return max(size / float(capacity.min()), 2 * (len(capacity) - 1) * size / float(capacity.sum()))


def partition_bound(capacities: Capacities, size: float, groups: tuple[tuple[int, ...], ...]) -> float:
    """Bound the time with each of `groups` taken as one participant; singletons give the node and volume bounds."""
    member = np.zeros((len(groups), len(capacities.up)))
    for number, group in enumerate(groups):
        member[number, list(group)] = 1
    crossing = member @ capacities.width @ member.T
    np.fill_diagonal(crossing, 0)
    up = np.array([capacities.up[list(group)].sum() for group in groups])
    down = np.array([capacities.down[list(group)].sum() for group in groups])
    out = np.minimum(up, crossing.sum(axis=1))
    into = np.minimum(down, crossing.sum(axis=0))
    slowest = min(out.min(), into.min())
    total = min(out.sum(), into.sum())
    if slowest <= 0:
        return float("inf")
    return float(max(size / slowest, 2 * (len(groups) - 1) * size / total))


def linkage(width: Matrix) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Merge the two groups joined by the widest link, again and again; give every partition of two groups or more."""
    size = len(width)
    both = width + width.T
    group: dict[int, tuple[int, ...]] = {node: (node,) for node in range(size)}
    yield tuple((node,) for node in range(size))
    first, second = np.triu_indices(size, 1)
    for index in np.argsort(-both[first, second], kind="stable"):
        one, two = group[int(first[index])], group[int(second[index])]
        if one == two:
            continue
        merged = tuple(sorted(one + two))
        group |= dict.fromkeys(merged, merged)
        if len(merged) == size:
            return
        yield tuple(sorted(set(group.values())))
