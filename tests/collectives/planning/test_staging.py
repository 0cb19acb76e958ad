"""Room for contributions: never more than a participant gives, as much as its ways need, and priced as it is run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ictp2p.collectives.plan import NO_PARENT, Plan, Share
from ictp2p.collectives.planning import halves, staging
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, Trunk, plan, predict
from ictp2p.collectives.planning.schedules.forest import forest
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.collectives.running.exchange import Exchange
from ictp2p.collectives.running.windows import ROOM_BYTES, STAGING_BYTES
from ictp2p.types import PeerId

MIB = 1024 * 1024


@st.composite
def forests(draw: st.DrawFn) -> list[Tree]:
    """Some random trees over the same participants."""
    size = draw(st.integers(1, 6))
    trees = []
    for _ in range(draw(st.integers(1, 5))):
        parents = [NO_PARENT] * size
        order = draw(st.permutations(range(size)))
        for place, node in enumerate(order[1:], 1):
            parents[node] = order[draw(st.integers(0, place - 1))]
        trees.append(Tree(order[0], tuple(parents), tuple(parents)))
    return trees


def drawn(data: st.DataObject, least: float, most: float, many: int) -> np.ndarray:
    """Some numbers, each for itself."""
    return np.array(data.draw(st.lists(st.floats(least, most), min_size=many, max_size=many)))


@given(forests(), st.data())
@settings(max_examples=200, deadline=None)
def test_room_is_never_exceeded_and_is_enough_where_it_can_be(trees: list[Tree], data: st.DataObject) -> None:
    sizes, ways = drawn(data, 0, 1e9, len(trees)), drawn(data, 0, 2, len(trees))
    limits = drawn(data, STAGING_BYTES, 1e9, len(trees[0].reduce_parents))
    partial, edges = data.draw(st.integers(1, 4 * MIB)), forest(trees).inward
    rooms = staging.divide(edges, sizes, 1.0, ways, partial, limits)
    assert (np.array(rooms) @ edges <= limits).all()
    windows, needs = staging.windows(rooms, edges, partial), np.minimum(sizes * ways, sizes)
    if (((staging.SPARE * needs + 2 * partial) @ edges) < limits).all():
        assert (windows * partial >= needs)[edges.any(axis=1)].all(), "there was room"
    cuts = np.arange(len(trees) + 1) * 9
    shares = tuple(Share(*cut, *tree, room) for *cut, tree, room in zip(cuts, cuts[1:], trees, rooms, strict=False))
    size = len(trees[0].reduce_parents)
    made = Plan("tree", tuple(map(str, range(size))), shares, 1, 0.0, 0.0)
    held = [Exchange(made, node, partial) for node in range(size)]
    for number, tree in enumerate(trees):
        run = [held[parent]._lanes[number].room for parent in tree.reduce_parents if parent != NO_PARENT]
        assert not run or min(run) == windows[number], "the executor has another window than was priced"
    for node, machine in enumerate(held):
        kept = partial * sum(lane.room * len(lane.children) for lane in machine._lanes)
        assert kept <= max(limits[node], partial * edges.sum(axis=0)[node])


@given(forests(), st.data())
@settings(max_examples=100, deadline=None)
def test_who_asks_for_room_has_no_less_than_who_asks_for_none(trees: list[Tree], data: st.DataObject) -> None:
    """Queues make ways longer than they were measured: the even part was there for that all along."""
    sizes, ways = drawn(data, 0, 1e9, len(trees)), drawn(data, 0, 2, len(trees))
    partial, edges = data.draw(st.integers(1024, 4 * MIB)), forest(trees).inward
    none, ample = (0,) * len(trees), np.full(edges.shape[1], 1e12)
    rooms = staging.divide(edges, sizes, 1.0, ways, partial, ample)
    before, after = (staging.windows(each, edges, partial) * partial for each in (none, rooms))
    assert (after >= np.minimum(before, np.maximum(sizes, 2 * partial)) - partial)[edges.any(axis=1)].all()


def regions(size: int, seconds: float) -> PlanRequest:
    """Three regions with lines of 200 Mbit/s to 1 Gbit/s between them; 4 Gbit/s per pair inside; so long one way."""
    who = tuple(PeerId(f"{n:032x}") for n in range(size))
    links = {(a, b): LinkEstimate(5e8, seconds) for a in who for b in who if a != b}
    lines = {(a, b): 2.5e7 * (1 + 2 * a + b) for a in range(3) for b in range(3) if a != b}
    trunks = tuple(
        Trunk(tuple((a, b) for a in who[x::3] for b in who[y::3]), line) for (x, y), line in sorted(lines.items())
    )
    access = dict.fromkeys(who, 2.5e8)
    return PlanRequest(who, 250_000_000, 4, links, access, access, trunks)


def test_regions_of_64_far_apart_are_at_their_bound() -> None:
    """With the least room these take several times as long: 64 participants share lines in trees that are deep."""
    asked = regions(64, 0.02)
    made = plan(asked).plan
    assert made.seconds <= 1.15 * made.bound
    most = max(made.room(node) for node in range(64))
    assert STAGING_BYTES < most <= ROOM_BYTES
    least = structs.replace(made, shares=tuple(structs.replace(share, room=0) for share in made.shares))
    assert predict(asked, least) > 1.15 * predict(asked, made), "a plan is priced with the room that it has"


@pytest.mark.parametrize("size", [2, 4])
def test_short_ways_ask_for_no_room(size: int) -> None:
    asked = regions(size, 1e-4)
    assert all(share.room == 0 for share in plan(asked).plan.shares)


def test_a_scattered_sum_over_a_long_way_asks_for_its_room() -> None:
    who = tuple(PeerId(f"{n:032x}") for n in range(4))
    links = {(a, b): LinkEstimate(1.25e9, 0.1) for a in who for b in who if a != b}
    access = dict.fromkeys(who, 1.25e9)
    made = halves.plan_scatter(PlanRequest(who, 250_000_000, 4, links, access, access)).plan
    assert all(STAGING_BYTES < made.room(node) <= ROOM_BYTES for node in range(4))
