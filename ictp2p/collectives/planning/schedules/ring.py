"""The ring: share k is reduced along the chain that ends at its root, and copied along the chain that begins there.

Every link of the cycle carries the same load, `2 (N-1)/N` of the vector, so its slowest link paces all: 1.5 to 1.8
times the optimum where access links differ, far worse between regions. Worth having where a cycle is all there is.
The best cycle is the one whose narrowest link is widest, and at a tie the one that a chunk is around soonest.

A single chain along a cycle loads the links at its root with one vector and all others with two. So a cluster behind a
slow line is best the root, and those with the slow sides of theirs towards it are best beside it: where lines differ
by a factor of two that is as fast as the bound. It takes another cycle than the ring does, for there all links count
alike, and any that goes by the slow line is as good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.trees import Matrix, Tree

_INNER = 0.5
"""Part of an edge's width that a chain has for each of its two ways, but for the edges at its root."""
_CHUNK = 64 * 1024
"""Bytes whose way around counts: of two cycles that are as wide and as far around, wider links are sooner."""
EXACT = 9
"""Up to this many participants all cycles are searched (by subsets: n^2 2^n steps); beyond, greedily."""


def trees(order: Sequence[int]) -> tuple[Tree, ...]:
    """Give one pair of chains per participant along the cycle `order`."""
    return tuple(_chains(order, place) for place in range(len(order)))


def best_cycle(width: Matrix, delay: Matrix) -> tuple[int, ...] | None:
    """Find a cycle over all participants with positive `width` on every edge, or None if none was found."""
    size = len(width)
    if size == 1:
        return (0,)
    return _exact(width, delay) if size <= EXACT else _greedy(width, delay, 1.0)


def best_chain(width: Matrix, delay: Matrix) -> Tree | None:
    """Find the chain along a cycle whose most loaded edge has the most width for its load, or None.

    There is none of two: it would load both lines as two chains do, and leave all the adding to one.
    """
    size = len(width)
    if size <= 2:
        return None
    order = _best_from_any(width, delay) if size <= EXACT else _greedy(width, delay, _INNER)
    return None if order is None else _chains(order, 0)


def _best_from_any(width: Matrix, delay: Matrix) -> tuple[int, ...] | None:
    """Search from one root after another, the most promising first, until no other can do better."""
    promises = _promises(width)
    best: tuple[_Score, tuple[int, ...] | None] = (0.0, 0.0), None
    for root in np.argsort(-promises, kind="stable").tolist():
        if promises[root] <= best[0][0]:
            break
        loaded = width * _INNER
        loaded[root], loaded[:, root] = width[root], width[:, root]
        turned = np.roll(np.arange(len(width)), -root)
        found = _exact(loaded[np.ix_(turned, turned)], delay[np.ix_(turned, turned)])
        if found is not None:
            order = tuple(turned[list(found)].tolist())
            best = max(best, (_score(order, loaded, delay), order), key=lambda one: one[0])
    return best[1]


def _promises(width: Matrix) -> Matrix:
    """Bound what the most loaded edge of a chain has for its load, by root: everybody needs a way in and a way out."""
    inward, outward = width.max(axis=0), width.max(axis=1)
    amid = np.minimum(inward, outward) * _INNER
    first = np.minimum(width, outward * _INNER)
    last = np.minimum(width.T, inward * _INNER)
    others = np.maximum(amid, np.maximum(first, last))
    np.fill_diagonal(others, np.minimum(inward, outward))
    promises: Matrix = others.min(axis=1)
    return promises


def _chains(order: Sequence[int], place: int) -> Tree:
    size = len(order)
    up, down = [NO_PARENT] * size, [NO_PARENT] * size
    for step in range(size - 1):
        up[order[(place + 1 + step) % size]] = order[(place + 2 + step) % size]
        down[order[(place + 1 + step) % size]] = order[(place + step) % size]
    return Tree(order[place], tuple(up), tuple(down))


_Score = tuple[float, float]


def _exact(width: Matrix, delay: Matrix) -> tuple[int, ...] | None:
    """Find the cycle with the widest narrowest edge; then, of those that are as wide, the soonest around."""
    found = _best_path(width, delay)
    if found is None:
        return None
    soon = delay + np.divide(_CHUNK, width, out=np.zeros_like(width), where=width > 0)
    return _best_path(np.minimum(width, _score(found, width, delay)[0]), soon)


def _best_path(width: Matrix, delay: Matrix) -> tuple[int, ...] | None:
    """Dynamic programming over (visited, last): the best (narrowest, -delay) path from participant 0."""
    size = len(width)
    widths, delays = width.tolist(), delay.tolist()
    best: list[dict[int, tuple[_Score, tuple[int, ...]]]] = [{} for _ in range(1 << size)]
    best[1][0] = (math.inf, 0.0), (0,)
    for visited in range(1, 1 << size, 2):
        outside = [(node, best[visited | 1 << node]) for node in range(size) if not visited >> node & 1]
        for last, ((narrowest, sooner), path) in sorted(best[visited].items()):
            edges, ways = widths[last], delays[last]
            for following, paths in outside:
                edge = edges[following]
                if edge > 0:
                    extended = min(narrowest, edge), sooner - ways[following]
                    if following not in paths or extended > paths[following][0]:
                        paths[following] = extended, (*path, following)
    closed = [
        ((min(narrowest, widths[last][0]), sooner - delays[last][0]), path)
        for last, ((narrowest, sooner), path) in best[-1].items()
        if widths[last][0] > 0
    ]
    return max(closed)[1] if closed else None


def _greedy(width: Matrix, delay: Matrix, inner: float) -> tuple[int, ...] | None:
    """From each start take the widest (then nearest) way on; keep the best cycle that closes.

    Edges that are not at the start count for `inner` of their width.
    """
    size = len(width)
    paths, left = np.arange(size)[:, None], ~np.eye(size, dtype=bool)
    narrowest, seconds = np.full(size, np.inf), np.zeros(size)
    for step in range(size - 1):
        last = paths[:, -1]
        ways = np.where(left, width[last], -np.inf)
        widest = ways.max(axis=1)
        following = np.where(ways == widest[:, None], delay[last], np.inf).argmin(axis=1)
        narrowest = np.minimum(narrowest, widest * (inner if step else 1.0))
        seconds = seconds + delay[last, following]
        left[np.arange(size), following] = False
        paths = np.column_stack([paths, following])
    narrowest = np.minimum(narrowest, width[paths[:, -1], paths[:, 0]])
    seconds += delay[paths[:, -1], paths[:, 0]]
    found = zip(narrowest.tolist(), (-seconds).tolist(), map(tuple, paths.tolist()), strict=True)
    return max((one for one in found if one[0] > 0), default=(0.0, 0.0, None))[2]


def _score(order: Sequence[int], width: Matrix, delay: Matrix) -> _Score:
    ends = [*order[1:], order[0]]
    return float(width[list(order), ends].min()), -float(delay[list(order), ends].sum())
