"""Max-min shares, against what they must satisfy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.max_min import shares


def test_a_bottleneck_is_shared_and_the_rest_taken() -> None:
    flow, resource = np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1])
    rates = shares(np.full(3, math.inf), flow, resource, np.array([10.0, 100.0]))
    assert rates.tolist() == pytest.approx([5.0, 5.0, 95.0])


def test_a_capped_flow_leaves_its_share_to_others() -> None:
    flow, resource = np.array([0, 1]), np.array([0, 0])
    assert shares(np.array([2.0, math.inf]), flow, resource, np.array([10.0])).tolist() == pytest.approx([2.0, 8.0])


def test_what_has_no_limit_holds_nobody_back() -> None:
    flow, resource = np.array([0, 1, 2]), np.array([0, 0, 0])
    caps = np.array([0.0, 5.0, math.inf])
    assert shares(caps, flow, resource, np.array([math.inf])).tolist() == [0.0, 5.0, math.inf]


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_shares_fit_and_every_flow_is_held_back_by_something_full(data: st.DataObject) -> None:
    flows, resources = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 5))
    capacity = np.array([data.draw(st.floats(1.0, 1e6)) for _ in range(resources)])
    caps = np.array([data.draw(st.one_of(st.just(math.inf), st.floats(0.5, 1e6))) for _ in range(flows)])
    uses = [(f, r) for f in range(flows) for r in range(resources) if r == f % resources or data.draw(st.booleans())]
    flow, resource = np.array([u[0] for u in uses]), np.array([u[1] for u in uses])
    rates = shares(caps, flow, resource, capacity)
    load = np.bincount(resource, weights=rates[flow], minlength=resources)
    assert (load <= capacity * (1 + 1e-6)).all()
    for f in range(flows):
        through = [r for g, r in uses if g == f]
        top = [
            r
            for r in through
            if load[r] >= capacity[r] * (1 - 1e-6) and rates[f] >= rates[flow[resource == r]].max() * (1 - 1e-6)
        ]
        assert rates[f] == pytest.approx(caps[f]) or top
