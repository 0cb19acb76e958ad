"""Trees laid where hundreds of resources limit: they are trees, fill these alike, and leave lines what they need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.plan import Plan, Share, check
from ictp2p.collectives.planning import bounds, topology
from ictp2p.collectives.planning.growing import grow
from ictp2p.collectives.planning.laying import Laid, Near, lay
from ictp2p.collectives.planning.packing import WORK, Packing
from ictp2p.collectives.planning.planner import LinkEstimate, plan
from ictp2p.collectives.planning.schedules.forest import forest
from ictp2p.collectives.planning.schedules.radius import eccentricities
from ictp2p.collectives.planning.schedules.trees import WHOLE
from ictp2p.collectives.planning.topology import Topology
from tests.collectives.planning.planned import names, oceans, request


def network(width: np.ndarray, up: dict[str, float] | None = None, down: dict[str, float] | None = None) -> Topology:
    who = names(len(width))
    links = {(who[i], who[j]): LinkEstimate(width[i, j]) for i, j in zip(*np.nonzero(width), strict=True)}
    return topology.build(who, links, up or {}, down or {})  # type: ignore[arg-type]


def filled(laid: Laid, topology: Topology) -> np.ndarray:
    """Seconds that each resource needs for its part of a byte."""
    load = topology.loads(laid.trees, WHOLE) @ laid.parts
    return load[load > 0] / topology.capacity[load > 0]


@given(st.integers(2, 20), st.integers(1, 4), st.integers(0, 2**32), st.floats(0, 0.9))
@settings(max_examples=30, deadline=None)
def test_they_are_trees_of_all_participants_over_links_that_there_are(
    size: int, regions: int, seed: int, missing: float
) -> None:
    width, lines = oceans(size, regions, seed)
    width[np.random.default_rng(seed).random(width.shape) < missing] = 0.0
    there = network(width, **lines)
    laid = lay(there, bounds.lower_bound(there, 1.0))
    if laid is None:
        assert not grow(there, WHOLE).trees, "somebody is out of reach"
        return
    shares = tuple(Share(n, n + 1, *tree) for n, tree in enumerate(laid.trees))
    assert check(Plan("tree", names(size), shares, 1, 0.0, 0.0), names(size), len(shares)) is None
    assert all(there.fits(tree) for tree in laid.trees)
    assert laid.parts.sum() == pytest.approx(1.0)
    assert (np.diff(laid.parts) < 0).all()
    assert filled(laid, there).max() >= bounds.lower_bound(there, 1.0) * (1 - 1e-9), "better than can be"
    again = lay(there, bounds.lower_bound(there, 1.0))
    assert again is not None
    assert again.trees == laid.trees


@pytest.mark.parametrize(("size", "regions"), [(24, 2), (32, 3), (32, 6), (48, 4), (64, 3)])
@pytest.mark.parametrize("seed", [1, 2])
def test_regions_with_a_link_for_each_pair_are_planned_near_their_bound(size: int, regions: int, seed: int) -> None:
    """A program over trees that were grown took up to nine times the bound, and its time."""
    width, lines = oceans(size, regions, seed)
    made = plan(request(width, 250_000_000, **lines)).plan
    assert made.seconds <= 1.1 * made.bound


@given(st.integers(2, 20), st.integers(1, 4), st.integers(0, 2**32), st.floats(1.0, 4.0))
@settings(max_examples=20, deadline=None)
def test_near_ones_lead_no_further_than_they_may(size: int, regions: int, seed: int, times: float) -> None:
    width, lines = oceans(size, regions, seed)
    rng = np.random.default_rng(seed)
    place = rng.random((size, 2))
    ways = np.hypot(*(place[:, None] - place).T) + np.where(np.eye(size), np.inf, 0.01)
    there = network(width, **lines)
    near = Near(ways, float(eccentricities(ways).min())).wider(times)
    laid = lay(there, bounds.lower_bound(there, 1.0), near)
    assert laid is not None, "a star from whom can be a root would do"
    assert forest(laid.trees).longest(np.where(np.eye(size), 0.0, ways)).max() <= 2 * near.radius * (1 + 1e-9)
    assert laid.near is near


@pytest.mark.parametrize(("size", "regions", "most"), [(12, 5, 1.3), (24, 4, 1.7), (32, 5, 1.5), (64, 3, 1.3)])
@pytest.mark.parametrize("seed", [1, 2])
def test_oceans_are_crossed_as_seldom_as_a_short_vector_needs(size: int, regions: int, most: float, seed: int) -> None:
    """Trees that went as far as was cheap took up to four and a half times the bound."""
    width, lines = oceans(size, regions, seed)
    where = np.arange(size) % regions
    made = plan(request(width, 10_000_000, np.where(where[:, None] == where, 0.005, 0.08), **lines)).plan
    assert made.seconds <= most * made.bound


@pytest.mark.parametrize(("size", "regions", "seed", "most"), [(13, 3, 2, 1.095), (13, 3, 5, 1.08), (16, 4, 2, 1.1)])
def test_trees_go_where_those_that_were_laid_leave_room(size: int, regions: int, seed: int, most: float) -> None:
    width, lines = oceans(size, regions, seed)
    made = plan(request(width, 250_000_000, **lines)).plan
    assert made.seconds <= most * made.bound


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_can_hardly_send_or_receive_what_it_must_is_spared_the_rest(way: str, seed: int) -> None:
    """It would be taken for a hub by the first trees, before its line is full."""
    width, lines = oceans(32, 3, seed)
    lines[way][names(32)[5]] = least = 0.9 * min(min(line.values()) for line in lines.values())
    there = network(width, **lines)
    laid = lay(there, 1 / least)
    assert laid is not None
    assert filled(laid, there).max() <= 1.02 / least


@pytest.mark.parametrize("size", [9, 12, 16, 24])
def test_pairs_of_any_rate_end_at_their_bound(size: int) -> None:
    rng = np.random.default_rng(size)
    width = np.where(np.eye(size), 0.0, 2.5e6 * 50 ** rng.random((size, size)))
    there = network(width)
    least = bounds.lower_bound(there, 1.0)
    grown = grow(there, WHOLE, least)
    assert (there.loads(grown.trees, WHOLE) @ grown.rates <= there.capacity * (1 + 1e-5)).all()
    assert least <= grown.bound <= 1 / grown.rates.sum() * (1 + 1e-5)
    assert 1 / grown.rates.sum() <= 1.03 * grown.bound


@pytest.mark.parametrize(("size", "seed"), [(14, 1), (14, 2), (14, 3), (16, 0), (16, 3), (18, 0)])
def test_the_program_over_them_does_not_wander(size: int, seed: int) -> None:
    """Among many divisions that are as good it took ten thousand steps, and was stopped."""
    rng = np.random.default_rng([size, seed])
    there = network(np.where(np.eye(size), 0.0, 2.5e6 * 50 ** rng.random((size, size))))
    laid = lay(there, bounds.lower_bound(there, 1.0))
    assert laid is not None
    packing = Packing(there.capacity)
    packing.add(there.loads(list(dict.fromkeys(laid.trees)), WHOLE))
    assert packing.work < WORK / 3


def test_what_is_packed_never_promises_more_than_lines_carry_however_soon_the_program_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped in its middle, the program gave rates at which links would carry thousands of times what they can."""
    width, lines = oceans(20, 4, 1)
    there = network(width, **lines)
    for most in (0, 100_000, 1_000_000, 10_000_000):
        monkeypatch.setattr("ictp2p.collectives.planning.growing.WORK", most)
        grown = grow(there, WHOLE, bounds.lower_bound(there, 1.0))
        load = there.loads(grown.trees, WHOLE) @ grown.rates
        assert (load <= there.capacity * (1 + 1e-5)).all()
        assert grown.rates.sum() * bounds.lower_bound(there, 1.0) >= 0.5
