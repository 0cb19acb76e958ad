from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.health import LocalHealth, missed_probe


@given(st.lists(st.integers(-3, 10)))
def test_score_saturates_at_both_ends(deltas: list[int]) -> None:
    health = LocalHealth(8)
    for delta in deltas:
        before = health.score
        health.note(delta)
        assert health.score == min(7, max(0, before + delta))
        assert 1 <= health.factor <= 8


@pytest.mark.parametrize(("asked", "refusals", "sign"), [(0, 0, 1), (3, 3, 0), (3, 1, 2), (3, 0, 3), (1, 1, 0)])
def test_a_missed_probe_counts_the_helpers_that_were_silent(asked: int, refusals: int, sign: int) -> None:
    assert missed_probe(asked, refusals) == sign
