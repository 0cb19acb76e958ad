"""Calls of clusters to one of whose workers something happens: nobody else has an error for it.

Each of these was found among calls at random (`test_all_calls_at_random`), where an error is none of the test's as long
as it is a documented one.
"""

from __future__ import annotations

import pytest

from tests.sim.call_harms import Harm
from tests.sim.call_stories import Plan, told


@pytest.mark.parametrize(
    ("plan", "harmed"),
    [
        pytest.param(
            Plan((2, 2), ("several", "sum", "mean"), (Harm(2.3, "restart", 5, 0.3),), 0.3, 1, True, 20.0, True, seed=0),
            {"a/1"},
            id="a leader that is back within moments, at another call than its mate",
        ),
        pytest.param(
            Plan((3, 3), ("barrier",), (Harm(0.16, "two", 3, 5.0),), again=True, patience=20.0, seed=0),
            {"b/0", "b/1"},
            id="a leader that is back after a decision that its mate has seen",
        ),
        pytest.param(
            Plan((2, 2), ("several", "barrier", "sync"), (Harm(0.48, "restart", 3, 5.0),), 0.3, 1, True, 20.0, seed=1),
            {"b/1"},
            id="a leader that is heard of again just when it was waited for long enough",
        ),
        pytest.param(
            Plan((2, 2, 2), ("several", "sum", "mean"), (Harm(3.46, "restart", 5, 3.0),), 0.3, 1, True, 20.0, True),
            {"c/1"},
            id="a leader that comes back in the middle of a slow round",
        ),
        pytest.param(
            Plan((2, 2, 2), ("sum", "barrier"), (Harm(0.12, "restart", 1, 0.3),), 0.3, 1, True, 20.0, seed=0),
            {"a/1"},
            id="a leader that has not begun, and coordinates the mesh",
        ),
        pytest.param(
            Plan(
                (2, 2), ("several", "barrier", "sync"), (Harm(1.83, "two", 0, 5.0),), 0.3, 1, True, 20.0, True, seed=3
            ),
            {"a/0", "a/1"},
            id="a whole cluster that begins with its first call",
        ),
    ],
)
def test_who_did_nothing_wrong_sees_no_error(plan: Plan, harmed: set[str]) -> None:
    errors = told(plan).errors
    assert {failure.life[0] for failure in errors} <= harmed, errors
