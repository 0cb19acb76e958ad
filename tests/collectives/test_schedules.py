"""The shapes that plans are packed from."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.schedules import ring, tree
from tests.collectives.planned import network, request


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_the_best_cycle_has_the_widest_narrowest_link(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    width = rng.integers(0, 6, (size, size)).astype(float)
    every = [
        min(width[order[n], order[(n + 1) % size]] for n in range(size))
        for rest in itertools.permutations(range(1, size))
        for order in [(0, *rest)]
    ]
    found = ring.best_cycle(width, np.zeros((size, size)))
    if found is None:
        assert max(every) == 0
    else:
        assert sorted(found) == list(range(size))
        assert min(width[found[n], found[(n + 1) % size]] for n in range(size)) == max(every)


def test_a_large_ring_is_found_greedily() -> None:
    width = np.full((12, 12), 1.0)
    order = ring.best_cycle(width, np.zeros((12, 12)))
    assert order is not None
    assert sorted(order) == list(range(12))
    assert ring.best_cycle(np.zeros((12, 12)), np.zeros((12, 12))) is None


def test_trees_stay_shallow_where_they_can() -> None:
    width = np.full((20, 20), 1.0)
    np.fill_diagonal(width, 0)
    assert all(max(t.depths()) <= tree.DEPTH for t in tree.trees(network(request(width)), 2, 2))
