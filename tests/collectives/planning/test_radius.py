"""Trees within a radius: they are trees, within it, and cheap."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning.schedules.arborescence import cheapest
from ictp2p.collectives.planning.schedules.radius import eccentricities, within

SIZES = st.integers(2, 14)
SEEDS = st.integers(0, 2**32)


def drawn(size: int, seed: int, missing: float) -> tuple[np.ndarray, np.ndarray]:
    """Prices, and ways: of some edges there are none."""
    rng = np.random.default_rng(seed)
    there = (rng.random((size, size)) >= missing) & ~np.eye(size, dtype=bool)
    price = np.where(there, rng.integers(0, 50, (size, size)).astype(float), np.inf)
    return price, np.where(there, rng.integers(1, 20, (size, size)).astype(float), np.inf)


def total(parents: tuple[int, ...], weight: np.ndarray) -> float:
    return float(sum(weight[parent, node] for node, parent in enumerate(parents) if parent != NO_PARENT))


def away(parents: tuple[int, ...], ways: np.ndarray, node: int) -> float:
    """How far the root is; an assertion that there is one."""
    seconds, passed = 0.0, 0
    while parents[node] != NO_PARENT:
        seconds, node, passed = seconds + ways[parents[node], node], parents[node], passed + 1
        assert passed < len(parents), "a cycle"
    return seconds


def prims(price: np.ndarray, ways: np.ndarray, root: int, radius: float) -> float:
    """What the tree costs that always takes the cheapest edge within the radius."""
    seconds, cost = {root: 0.0}, 0.0
    while len(seconds) < len(price):
        edges = itertools.product(seconds, set(range(len(price))) - set(seconds))
        able = [(price[a, b], a, b) for a, b in edges if seconds[a] + ways[a, b] <= radius]
        least, source, target = min(able)
        seconds[target], cost = seconds[source] + ways[source, target], cost + least
    return cost


@example(11, 2684, 0.0, 19).via("moved twice, the first time from below who moves between")
@given(SIZES, SEEDS, st.floats(0, 0.6), st.integers(1, 60))
@settings(max_examples=150, deadline=None)
def test_they_lead_from_the_root_to_everybody_within_the_radius(
    size: int, seed: int, missing: float, radius: int
) -> None:
    price, ways = drawn(size, seed, missing)
    root = seed % size
    parents = within(price, ways, root, radius)
    if parents is None:
        if missing == 0:
            assert ways[root, np.arange(size) != root].max() > radius, "a star would have done"
        return
    assert [node for node, parent in enumerate(parents) if parent == NO_PARENT] == [root]
    assert max(away(parents, ways, node) for node in range(size)) <= radius
    assert np.isfinite(total(parents, price))
    assert within(price, ways, root, radius) == parents


@given(SIZES, SEEDS, st.integers(20, 60))
@settings(max_examples=150, deadline=None)
def test_they_cost_no_more_than_prims_and_no_less_than_the_cheapest_of_all(size: int, seed: int, radius: int) -> None:
    size = max(size, 3)
    price, ways = drawn(size, seed, 0.0)
    price += np.random.default_rng(seed).random(price.shape)  # no two alike: there is one such tree
    parents, least = within(price, ways, 0, radius), cheapest(price, 0)
    assert parents is not None
    assert least is not None
    assert least[1] * (1 - 1e-9) <= total(parents, price) <= prims(price, ways, 0, radius) * (1 + 1e-9)


@given(SIZES, SEEDS)
@settings(max_examples=80, deadline=None)
def test_without_a_limit_they_are_the_cheapest_where_both_directions_cost_the_same(size: int, seed: int) -> None:
    price, ways = drawn(size, seed, 0.0)
    price = np.minimum(price, price.T)
    parents, least = within(price, ways, 0, np.inf), cheapest(price, 0)
    assert parents is not None
    assert least is not None
    assert total(parents, price) == pytest.approx(least[1])


def test_who_was_reached_too_soon_is_moved_with_all_below_it() -> None:
    """From 0 the way to 1 is dear, and then all are cheap: 2 leads back to it."""
    price = np.array(
        [[np.inf, 5.0, 6.0, 9.0], [9.0, np.inf, 9.0, 1.0], [9.0, 1.0, np.inf, 9.0], [9.0, 9.0, 9.0, np.inf]]
    )
    ways = np.ones((4, 4))
    assert within(price, ways, 0, 3.0) == (NO_PARENT, 2, 0, 1)
    assert within(price, ways, 0, 2.0) == (NO_PARENT, 0, 0, 1), "3 would be too far"


@given(SIZES, SEEDS, st.floats(0, 0.7))
@settings(max_examples=80, deadline=None)
def test_how_far_the_farthest_is(size: int, seed: int, missing: float) -> None:
    _, ways = drawn(size, seed, missing)
    trees = [[cheapest_ways(there, root) for root in range(size)] for there in (ways, ways.T)]
    assert eccentricities(ways).tolist() == [max(out, back) for out, back in zip(*trees, strict=True)]


def cheapest_ways(ways: np.ndarray, root: int) -> float:
    """How far the farthest is from the root (Bellman and Ford's)."""
    seconds = np.where(np.arange(len(ways)) == root, 0.0, np.inf)
    for _ in ways:
        seconds = np.minimum(seconds, (seconds[:, None] + ways).min(axis=0))
    return float(seconds.max())
