"""How a vector is cut: into equal shares, and chunks that hold nothing up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.planning.candidates import CHUNK, CHUNK_SECONDS, LEAST_CHUNK, SLOW_CHUNK
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, plan
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.collectives.running.windows import STAGING_BYTES
from tests.collectives.planning.planned import alike, depths, names, oceans, request


@given(st.integers(2, 40))
@settings(max_examples=20, deadline=None)
def test_chunks_leave_room_for_a_window(size: int) -> None:
    chosen = plan(request(alike(size, 1e9), 10_000_000, only="star")).plan
    assert chosen.chunk * 4 * 4 * (size - 1) <= max(STAGING_BYTES, 4 * 4096 * 4 * (size - 1))


@given(st.integers(2, 12), st.integers(0, 100_000_000), st.floats(1e6, 1e11), st.sampled_from(["star", "ring"]))
@settings(max_examples=60, deadline=None)
def test_a_chunk_neither_holds_a_link_up_nor_falls_out_of_the_caches(
    size: int, elements: int, speed: float, kind: str
) -> None:
    chunk = 4 * plan(request(alike(size, speed), elements, only=kind)).plan.chunk
    assert chunk <= CHUNK
    assert chunk <= max(SLOW_CHUNK, speed * CHUNK_SECONDS)


def test_on_one_machine_long_tensors_travel_in_whole_chunks_and_ask_for_no_room() -> None:
    who = names(4)
    links = {pair: LinkEstimate() for pair in itertools.permutations(who, 2)}
    for size in (2, 3, 4):
        chosen = plan(
            PlanRequest(who[:size], 25_000_000, 4, {p: links[p] for p in links if {*p} <= {*who[:size]}})
        ).plan
        assert 4 * chosen.chunk == CHUNK
        assert all(share.room == 0 for share in chosen.shares)


@pytest.mark.parametrize("kind", ["star", "ring"])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_where_all_links_are_alike_all_have_equal_shares(size: int, kind: str) -> None:
    """Of several divisions that are as fast: with one root of two, one would do all the adding."""
    shares = plan(request(alike(size, 4e9), 25_000_000, only=kind)).plan.shares
    assert sorted(share.root for share in shares) == list(range(size))
    sizes = [share.stop - share.start for share in shares]
    assert max(sizes) - min(sizes) <= 64 * 1024


def test_where_links_differ_shares_are_equal_still_if_no_division_is_faster() -> None:
    """The slowest links decide, in any division: a linear program finds an uneven one that is as fast."""
    width = np.array([[0, 4, 4, 4], [1, 0, 4, 1], [2, 1, 0, 2], [2, 2, 1, 0]]) * 1e6
    shares = plan(request(width, 25_000_000, only="star")).plan.shares
    sizes = [share.stop - share.start for share in shares]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 64 * 1024


@pytest.mark.parametrize(("size", "regions"), [(9, 3), (16, 4), (24, 2)])
@pytest.mark.parametrize("elements", [2_000_000, 50_000_000])
def test_short_shares_with_long_ways_travel_in_shorter_chunks(size: int, regions: int, elements: int) -> None:
    """Where all lines are full each hop of a share takes as long as its own chunks come one after another."""
    width, lines = oceans(size, regions, 1)
    made = plan(request(width, elements, only="tree", **lines)).plan
    trees = [Tree(share.root, share.reduce_parents, share.broadcast_parents) for share in made.shares]
    hops = max(sum(depths(tree)) for tree in trees)
    enough = 4 * elements / len(made.shares) / (4 * hops)
    slowest = min(width[edge] for tree in trees for edge in tree.edges())
    assert 4 * made.chunk <= max(LEAST_CHUNK, min(enough, SLOW_CHUNK), slowest * CHUNK_SECONDS)
