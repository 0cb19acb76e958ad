"""What is asked of many trees at once is what one tree after the other would answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.plan import NO_PARENT
from ictp2p.collectives.planning import topology
from ictp2p.collectives.planning.schedules.forest import forest
from ictp2p.collectives.planning.schedules.trees import Cost, Tree, downward
from ictp2p.collectives.planning.topology import LinkEstimate
from ictp2p.types import PeerId


@st.composite
def forests(draw: st.DrawFn) -> list[Tree]:
    """Some random trees over the same participants, both ways different, or without a way up."""
    size = draw(st.integers(1, 9))

    def parents(root: int) -> tuple[int, ...]:
        found = [NO_PARENT] * size
        order = [root, *draw(st.permutations([node for node in range(size) if node != root]))]
        for place, node in enumerate(order[1:], 1):
            found[node] = order[draw(st.integers(0, place - 1))]
        return tuple(found)

    roots = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    grown = [Tree(root, parents(root), parents(root)) for root in roots]
    return [downward(tree) for tree in grown] if draw(st.booleans()) else grown


def way(parents: tuple[int, ...], node: int, delay: np.ndarray) -> float:
    parent = parents[node]
    return 0.0 if parent == NO_PARENT else float(delay[node, parent]) + way(parents, parent, delay)


@given(forests(), st.integers(0, 2**32))
def test_the_longest_ways_are_those_of_each_tree(trees: list[Tree], seed: int) -> None:
    size = len(trees[0].reduce_parents)
    delay = np.random.default_rng(seed).random((size, size))
    longest = forest(trees).longest(delay)
    for tree, found in zip(trees, longest, strict=True):
        up = max(way(tree.reduce_parents, node, delay) for node in range(size))
        down = max(way(tree.broadcast_parents, node, delay.T) for node in range(size))
        assert found == pytest.approx(up + down)


@given(forests())
def test_edges_are_those_of_each_tree_and_messages_their_ends(trees: list[Tree]) -> None:
    stacked = forest(trees)
    messages = stacked.messages()
    for number, tree in enumerate(trees):
        mine = stacked.tree == number
        edges = list(zip(stacked.source[mine].tolist(), stacked.target[mine].tolist(), strict=True))
        assert edges == tree.edges()
        for node in range(stacked.size):
            assert messages[number, node] == sum(edge.count(node) for edge in edges)
            assert stacked.inward[number, node] == tree.reduce_parents.count(node)


@given(forests(), st.integers(0, 2**32))
def test_loads_count_what_each_link_and_each_access_line_carries(trees: list[Tree], seed: int) -> None:
    """A contribution is as it comes, a sum of several is a partial one, and results descend."""
    rng = np.random.default_rng(seed)
    size, cost = len(trees[0].reduce_parents), Cost(0.3, 0.5, 0.7)
    who = tuple(PeerId(f"{n:032x}") for n in range(size))
    links = {pair: LinkEstimate(float(rng.uniform(1, 9))) for pair in itertools.permutations(who, 2)}
    network = topology.build(who, links, {}, {})
    sizes = rng.uniform(0, 9, len(trees))
    loads = network.loads(trees, cost)
    for number, tree in enumerate(trees):
        expected = np.zeros((size, size))
        for node, parent in enumerate(tree.reduce_parents):
            if parent != NO_PARENT:
                expected[node, parent] += cost.partial if node in tree.reduce_parents else cost.contribution
        for node, parent in enumerate(tree.broadcast_parents):
            if parent != NO_PARENT:
                expected[parent, node] += cost.result
        assert loads[: size * size, number].reshape(size, size) == pytest.approx(expected)
        assert loads[size * size : size * size + size, number] == pytest.approx(expected.sum(axis=1))
        assert loads[size * size + size : size * size + 2 * size, number] == pytest.approx(expected.sum(axis=0))
    assert network.carried(forest(trees), cost, sizes) == pytest.approx(loads @ sizes)
