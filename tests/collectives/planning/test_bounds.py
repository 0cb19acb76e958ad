"""What no plan can beat."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.planning import bounds
from ictp2p.collectives.planning.growing import grow
from ictp2p.collectives.planning.planner import Trunk, plan
from ictp2p.collectives.planning.schedules.trees import WHOLE
from tests.collectives.planning.planned import names, network, oceans, request


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_more_capacity_never_raises_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    who = names(size)
    width, factor = rng.uniform(1, 9, (size, size)), rng.uniform(1, 2, (size, size))
    up, more = rng.uniform(1, 20, size), rng.uniform(1, 2, size)
    line = (Trunk(((who[0], who[1]), (who[1], who[0])), float(rng.uniform(1, 9))),)
    low = network(request(width, up=dict(zip(who, up, strict=True)), trunks=line))
    high = network(request(width * factor, up=dict(zip(who, up * more, strict=True))))
    assert bounds.lower_bound(high, 1.0) <= bounds.lower_bound(low, 1.0) * (1 + 1e-9)


def test_two_regions_are_bounded_by_the_link_between_them() -> None:
    width = np.full((4, 4), 1e9)
    width[:2, 2:] = width[2:, :2] = 1e6
    np.fill_diagonal(width, 0)
    bound = bounds.lower_bound(network(request(width)), 8e6)
    assert bound == pytest.approx(2.0)


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_merged_participants_can_do_is_no_less(seed: int, shared: bool) -> None:
    """Else it would be no bound."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 8))
    who = names(size)
    lines = {way: dict(zip(who, rng.uniform(5, 30, size), strict=True)) for way in ("up", "down")}
    trunks = (Trunk(((who[0], who[1]), (who[1], who[2])), float(rng.uniform(1, 9))),) if shared else ()
    there = network(request(rng.uniform(1, 9, (size, size)), trunks=trunks, **lines))
    whole = grow(there, WHOLE)
    for groups in bounds.linkage(there.fair()):
        if len(groups) > 1:
            assert grow(bounds.merged(there, groups), WHOLE).bound <= 1 / whole.rates.sum() * (1 + 1e-6)


def test_a_merged_network_has_what_its_members_have_to_others() -> None:
    width = np.array([[0, 4e6, 2e6], [3e6, 0, 4e6], [5e6, 6e6, 0]])
    there = network(request(width, up=dict(zip(names(3), (1e6, 9e6, 9e6), strict=True))))
    assert bounds.merged(there, ((0,), (1,), (2,))).width.tolist() == there.width.tolist()
    pair = bounds.merged(there, ((0, 2), (1,)))
    assert pair.width.tolist() == [[0.0, 1e6 + 6e6], [3e6 + 4e6, 0.0]]
    assert (pair.up.tolist(), pair.down.tolist()) == ([7e6, 7e6], [7e6, 7e6])


@pytest.mark.parametrize(("size", "regions", "seed"), [(16, 4, 1), (16, 5, 1), (18, 5, 2)])
def test_few_groups_prove_more_than_volumes_where_too_much_limits_for_a_program(
    size: int, regions: int, seed: int
) -> None:
    width, lines = oceans(size, regions, seed)
    asked = request(width, 250_000_000, **lines)
    made = plan(asked).plan
    assert 1.01 * bounds.lower_bound(network(asked), 1e9) < made.bound <= made.seconds <= 1.1 * made.bound
