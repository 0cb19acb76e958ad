"""The rules of `ictp2p/sync/rounds/replanning.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "given-up-counts-as-late",
        "An attempt that was given up for another plan did not take too long: the next has no longer for it.",
        "self.gave_up = True",
        "self.gave_up = False",
        (
            "sync/rounds/test_rounds.py"
            "::test_a_slow_attempt_is_given_up_for_another_plan_where_all_average_all[all-True]",
        ),
    ),
    Mutation(
        "rivals-made-in-vain",
        "No other plan is made for an attempt under way that none could be worth: it would hold up the attempt itself.",
        "        if self._left(running, elapsed) <= DETOUR * least + COST:\n            return None\n",
        "",
        ("sync/rounds/test_replanning.py::test_nothing_is_given_up_that_would_be_over_sooner",),
    ),
    Mutation(
        "detour-on-one-measurement",
        "An attempt is given up for another plan only if its own pace confirms what the links say.",
        "return min((1 - self._done) * running, pace)",
        "return (1 - self._done) * running",
        ("sync/rounds/test_replanning.py::test_a_wrong_measurement_alone_ends_nothing",),
    ),
)
