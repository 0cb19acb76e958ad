"""Trees of two hops: they are trees, over links that are there, and fill these alike up to near the bound."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.plan import Plan, Share, check, validate
from ictp2p.collectives.planning import bounds, levelling, topology
from ictp2p.collectives.planning.candidates import shared
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, plan
from ictp2p.collectives.planning.schedules.trees import WHOLE, Tree
from ictp2p.collectives.planning.search import MARGIN
from ictp2p.types import PeerId
from tests.collectives.planning.planned import bytes_between, depths

NEAR = 1.1


def request(width: np.ndarray, elements: int = 250_000_000) -> PlanRequest:
    who = tuple(PeerId(f"{n:032x}") for n in range(len(width)))
    links = {
        (who[i], who[j]): LinkEstimate(float(width[i, j]))
        for i, j in itertools.permutations(range(len(width)), 2)
        if width[i, j] > 0
    }
    return PlanRequest(who, elements, 4, links)


def pairs(size: int, seed: int, spread: float = 50) -> np.ndarray:
    width = 2.5e6 * spread ** np.random.default_rng(seed).random((size, size))
    np.fill_diagonal(width, 0.0)
    return width


def wrong(trees: tuple[Tree, ...], size: int) -> str | None:
    shares = tuple(Share(n, n + 1, *tree) for n, tree in enumerate(trees))
    who = tuple(str(n) for n in range(size))
    return check(Plan("tree", who, shares, 1, 0.0, 0.0), who, len(shares))


def fill(found: levelling.Levelled, width: np.ndarray) -> np.ndarray:
    """Seconds that each link needs for its part of a byte."""
    load = np.zeros(width.shape)
    for tree, part in zip(found.trees, found.parts, strict=True):
        for edge in tree.edges():
            load[edge] += part
    assert not load[width == 0].any(), "a link that is not there"
    return np.divide(load, width, out=np.zeros_like(load), where=width > 0)


@given(st.integers(2, 20), st.integers(0, 2**32), st.integers(1, 40), st.floats(1, 1e4), st.floats(0, 0.9))
@settings(deadline=None)
def test_they_are_trees_of_all_participants_over_links_that_there_are(
    size: int, seed: int, count: int, spread: float, missing: float
) -> None:
    width = pairs(size, seed, spread)
    width[np.random.default_rng(seed + 1).random(width.shape) < missing] = 0.0
    found = levelling.trees(width, count)
    if found is None:
        assert (width == 0).sum() > size, "there is a way, and each pair has a link"
        return
    assert len(found.trees) == len(found.parts) == count
    assert wrong(found.trees, size) is None
    assert all(max(depths(tree)) <= 2 for tree in found.trees)
    assert found.parts.sum() == pytest.approx(1.0)
    assert (found.parts > 0).all()
    assert fill(found, width).max() >= levelling.least(width) * (1 - 1e-9), "better than can be"
    again = levelling.trees(width, count)
    assert again is not None
    assert again.trees == found.trees


def test_where_two_hops_do_not_lead_everywhere_there_are_none() -> None:
    line = np.zeros((6, 6))
    for node in range(5):
        line[node, node + 1] = line[node + 1, node] = 1e6
    assert levelling.trees(line, 8) is None
    lonely = pairs(6, 1)
    lonely[3] = 0.0
    assert levelling.trees(lonely, 8) is None
    hub = np.zeros((6, 6))
    hub[0, 1:] = hub[1:, 0] = 1e6
    found = levelling.trees(hub, 8)
    assert found is not None
    assert wrong(found.trees, 6) is None
    fill(found, hub)


@given(st.integers(2, 10), st.integers(0, 2**32))
@settings(deadline=None)
def test_what_links_need_at_least_is_a_bound(size: int, seed: int) -> None:
    asked = request(pairs(size, seed))
    network = topology.build(asked.participants, asked.links, {}, {})
    assert levelling.least(network.width) <= bounds.lower_bound(network, 1.0) * (1 + 1e-9)


@pytest.mark.parametrize("size", [16, 24, 32, 48, 64])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_links_of_pairs_are_filled_up_to_near_the_bound(size: int, seed: int) -> None:
    width = pairs(size, seed)
    found = levelling.trees(width, levelling.COUNTS[0])
    assert found is not None
    assert fill(found, width).max() <= NEAR * levelling.least(width)


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_can_hardly_send_or_receive_what_it_must_is_spared_the_rest(sends: bool, seed: int) -> None:
    """Others would take its links before it needs them: a share each, and it needs nearly all that they carry."""
    width = pairs(16, seed)
    links = width[5] if sends else width[:, 5]
    links *= 1.02 / (levelling.least(width) * links.sum())
    found = levelling.trees(width, levelling.COUNTS[0])
    assert found is not None
    assert fill(found, width).max() <= NEAR * levelling.least(width)


@pytest.mark.parametrize("size", [9, 12, 16, 24, 64])
def test_a_plan_for_pairs_is_near_its_bound_and_fits_the_wire(size: int) -> None:
    asked = request(pairs(size, 7))
    made = plan(asked).plan
    data = made.encode()
    assert validate(data, asked.participants, asked.elements) is None
    assert len(data) <= 32 * 1024
    network = topology.build(asked.participants, asked.links, {}, {})
    trees = [Tree(share.root, share.reduce_parents, share.broadcast_parents) for share in made.shares]
    load = network.loads(trees, WHOLE) @ [4.0 * (share.stop - share.start) for share in made.shares]
    used = load > 0
    seconds = float((load[used] / network.capacity[used]).max())
    assert made.bound <= seconds <= min(made.seconds, NEAR * made.bound)
    assert plan(asked).plan.encode() == data


@pytest.mark.parametrize("count", levelling.COUNTS)
def test_the_planner_keeps_all_of_them(count: int) -> None:
    """What carries next to nothing is left out, and if that is much in all, the linear program is asked."""
    asked = request(pairs(9, 1))
    job = asked.job(topology.build(asked.participants, asked.links, {}, {}))
    found = levelling.trees(job.topology.width, count)
    assert found is not None
    assert shared("tree", found.trees, found.parts, job).trees == found.trees


@pytest.mark.parametrize("elements", [1000, 250_000])
def test_small_tensors_take_what_waits_least(elements: int) -> None:
    """Two hops of 50 ms each way; many shares would take their messages besides."""
    asked = request(pairs(24, 7), elements)
    far = replace(asked, links={pair: replace(link, delay=0.05) for pair, link in asked.links.items()})
    made = plan(far).plan
    assert made.seconds <= MARGIN * plan(replace(far, only="star")).plan.seconds
    assert len(made.shares) < levelling.COUNTS[0]


@given(st.integers(9, 14), st.integers(0, 2**32), st.integers(0, 3_000_000), st.floats(0, 0.9))
@settings(max_examples=15, deadline=None)
def test_no_link_carries_more_than_was_promised(size: int, seed: int, elements: int, missing: float) -> None:
    width = pairs(size, seed)
    lost = np.random.default_rng(seed + 1).random(width.shape) < missing
    lost[np.arange(size), np.roll(np.arange(size), -1)] = False
    width[lost] = 0.0
    asked = request(width, elements)
    made = plan(asked).plan
    assert validate(made.encode(), asked.participants, elements) is None
    assert made.seconds >= made.bound
    for i, j in itertools.permutations(range(size), 2):
        carried = bytes_between(made, i, j)
        assert carried == 0 or width[i, j] > 0
        assert carried <= made.seconds * width[i, j] * (1 + 1e-6) + 1
