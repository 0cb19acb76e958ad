from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.core.overlay import BESIDE, COMPLETE, Overlay
from ictp2p.types import ClusterId

Graph = dict[ClusterId, set[ClusterId]]


def named(count: int, salt: str = "") -> list[ClusterId]:
    return [ClusterId(f"{salt}c{i}") for i in range(count)]


def graph(present: list[ClusterId], hidden: Iterable[ClusterId] = (), complete: int = 4) -> Graph:
    """Who is connected to whom once everybody has dialed its picks; nobody can dial the hidden ones."""
    edges: Graph = {name: set() for name in present}
    dialable = [name for name in present if name not in set(hidden)]
    for name in present:
        for pick in Overlay(name, complete).picks([other for other in dialable if other != name], ()):
            edges[name].add(pick)
            edges[pick].add(name)
    return edges


def reached(edges: Graph, without: Iterable[ClusterId] = ()) -> tuple[set[ClusterId], int]:
    """Whom the first one reaches, and in how many hops the last of them."""
    gone = set(without)
    start = next(name for name in edges if name not in gone)
    seen, edge, hops = {start}, {start}, 0
    while edge := {n for name in edge for n in edges[name]} - seen - gone:
        seen |= edge
        hops += 1
    return seen, hops


@settings(max_examples=50)
@given(st.integers(6, 60), st.text("abc", max_size=4), st.data())
def test_whichever_three_clusters_fail_the_others_stay_connected(size: int, salt: str, data: st.DataObject) -> None:
    names = named(size, salt)
    gone = data.draw(st.lists(st.sampled_from(names), max_size=2 * BESIDE - 1, unique=True))
    seen, _ = reached(graph(names), gone)
    assert len(seen) == size - len(gone)


@pytest.mark.parametrize("size", range(6, 30))
def test_nobody_has_fewer_neighbours_than_the_ring_gives(size: int) -> None:
    assert min(len(beside) for beside in graph(named(size)).values()) >= 2 * BESIDE


@pytest.mark.parametrize("seed", range(20))
def test_a_third_may_fail_at_once_and_the_rest_is_a_few_hops_wide(seed: int) -> None:
    names = named(99, str(seed))
    gone = random.Random(seed).sample(names, 33)
    seen, hops = reached(graph(names), gone)
    assert len(seen) == 66
    assert hops <= 6


@pytest.mark.parametrize("size", [64, 256, 1000])
def test_connections_grow_with_the_logarithm_of_the_mesh(size: int) -> None:
    edges = graph(named(size))
    degrees = [len(beside) for beside in edges.values()]
    assert sum(degrees) / size <= 2 * BESIDE + 2 * math.ceil(math.log2(size))
    assert max(degrees) <= 2 * BESIDE + 4 * math.ceil(math.log2(size))
    assert reached(edges)[1] <= 5


@given(st.integers(6, 40), st.data())
def test_who_cannot_be_dialed_is_connected_by_its_own_picks(size: int, data: st.DataObject) -> None:
    names = named(size)
    hidden = data.draw(st.lists(st.sampled_from(names), max_size=size - 5, unique=True))
    seen, _ = reached(graph(names, hidden))
    assert len(seen) == size


@given(st.integers(0, COMPLETE - 1), st.integers(0, 10))
def test_a_small_mesh_is_complete_and_looks_for_the_dead(alive: int, dead: int) -> None:
    present, absent = named(alive), named(dead, "dead")
    assert Overlay(ClusterId("me")).picks(present, absent) == {*present, *absent}


def test_at_the_limit_it_does_not_alternate() -> None:
    overlay = Overlay(ClusterId("me"), 32)
    assert len(overlay.picks(named(31), ())) == 31
    assert len(overlay.picks(named(32), ())) < 16
    assert len(overlay.picks(named(31), ())) < 16
    assert len(overlay.picks(named(23), ())) == 23
    assert len(overlay.picks(named(31), ())) == 31


@given(st.integers(40, 120), st.integers(0, 10_000))
def test_a_newcomer_changes_few_picks(size: int, salt: int) -> None:
    names = named(size, str(salt))
    me, newcomer = names[0], ClusterId("newcomer")
    overlay = Overlay(me)
    before = overlay.picks(names[1:], ())
    after = overlay.picks([*names[1:], newcomer], ())
    assert len(before - after) <= 2 + 1
    assert len(after - before) <= 2 + 1


def test_two_halves_look_for_each_other() -> None:
    names = named(80)
    here, there = names[:40], names[40:]
    across = 0
    for name in here:
        overlay = Overlay(name)
        picks = overlay.picks([other for other in here if other != name], there)
        assert overlay.sparse
        assert picks >= overlay.picks([other for other in here if other != name], ())
        across += len(picks & set(there))
    assert across > 40


def test_of_clusters_that_are_gone_for_good_little_is_kept() -> None:
    """Each job of a scheduler may be a cluster of its own, for months: what stays of each is too much."""
    overlay, names = Overlay(ClusterId("me"), 4), named(500)
    for first in range(len(names) - 10):
        overlay.picks(names[first : first + 6], names[first + 6 : first + 10])
    assert overlay.sparse
    assert len(overlay._closeness) <= 2 * 10 + 10
