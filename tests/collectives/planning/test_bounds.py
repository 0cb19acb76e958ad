"""What no plan can beat."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.planning import bounds
from ictp2p.collectives.planning.planner import Trunk
from tests.collectives.planning.planned import names, network, request


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
