"""All kinds of calls while workers die, sleep, leave, come back or come late, and clusters are cut off.

As `test_calls_at_random`, which has sums and barriers alone: each result says whose tensors of which of their calls are
in it, and that is looked at by its own worker (`call_kinds`, `call_stories`) and across all of them (`call_verdicts`).
`CALLS=200 pytest tests/sim/test_all_calls_at_random.py` tries many more.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.sim.call_harms import Harm
from tests.sim.call_kinds import KINDS
from tests.sim.call_stories import Plan, told

STORIES = int(os.environ.get("CALLS", "3"))
LAYOUTS = ((2, 2), (3, 1), (1, 1, 1), (2, 1, 1), (2, 2, 1), (3, 2), (3,))
HARMS = st.builds(
    Harm,
    st.floats(0.01, 3.0),
    st.sampled_from(
        ["crash", "restart", "restart", "sleep", "sleep", "cut", "down", "two", "leave", "voters", "reset", "forget"]
    ),
    st.integers(0, 7),
    st.sampled_from([0.3, 1.5, 5.0, 12.0]),
)
LOOPS = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True).map(tuple)
"""No two alike: nothing tells those apart where workers start again."""
PLANS = st.builds(
    Plan,
    layout=st.sampled_from(LAYOUTS),
    loop=LOOPS,
    harms=st.lists(HARMS, max_size=5).map(tuple),
    step=st.sampled_from([0.0, 0.3, 1.0]),
    flight=st.sampled_from([1, 1, 3]),
    again=st.booleans(),
    patience=st.sampled_from([5.0, 5.0, 15.0]),
    slow=st.booleans(),
    late=st.sampled_from([None, None, 0.5, 2.0]),
    seed=st.integers(0, 3),
)


@pytest.mark.timeout(60 + 30 * STORIES)
@given(PLANS)
@settings(
    max_examples=STORIES,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_whatever_happens_results_are_what_they_say_and_calls_stay_in_step(plan: Plan) -> None:
    told(plan)
