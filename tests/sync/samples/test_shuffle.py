from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.sync.samples.shuffle import shuffled


def whole(size: int, seed: int, epoch: int) -> list[int]:
    return [int(v) for v in shuffled(np.arange(size, dtype=np.uint64), size, seed, epoch)]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3000), st.integers(-5, 2**70), st.integers(0, 2**40))
def test_it_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    assert sorted(whole(size, seed, epoch)) == list(range(size))


@given(st.integers(2, 2**53), st.lists(st.integers(0, 2**53), min_size=1, max_size=20))
def test_each_position_alone_gives_the_same(size: int, drawn: list[int]) -> None:
    positions = np.array([value % size for value in drawn], dtype=np.uint64)
    together = shuffled(positions, size, 1, 2)
    assert (together < size).all()
    assert [int(shuffled(positions[i : i + 1], size, 1, 2)[0]) for i in range(len(positions))] == together.tolist()


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    orders = [tuple(whole(100, seed, epoch)) for seed in range(5) for epoch in range(5)]
    assert len(set(orders)) == 25
    assert tuple(range(100)) not in orders


def test_neighbours_are_spread_over_the_whole_range() -> None:
    """Each tenth of the positions has about a tenth of its values in each tenth of the range."""
    values = np.array(whole(10_000, 7, 0)).reshape(10, 1000) // 1000
    counts = np.array([np.bincount(row, minlength=10) for row in values])
    assert counts.min() > 60
    assert counts.max() < 140


def test_the_order_is_the_same_in_every_version() -> None:
    """A mesh may hold peers of several builds, and they must agree on which samples a block has."""
    assert whole(12, 3, 1) == [9, 7, 4, 5, 10, 3, 2, 0, 11, 6, 1, 8]
