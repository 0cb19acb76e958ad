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
        "        if not vain and self._left(found.running, elapsed) <= _dear(found.new):\n            return None\n",
        "",
        ("sync/rounds/test_replanning.py::test_nothing_is_given_up_that_would_be_over_sooner",),
    ),
    Mutation(
        "trial-without-end",
        "A plan on trial that has shown what it is worth is given up for one that is known, whatever links promise.",
        "vain = found.proven > 0 and min(elapsed, self._pace(elapsed)) > proven",
        "vain = False",
        ("sync/rounds/test_replanning.py::test_a_trial_that_has_shown_what_it_is_worth_ends_for_what_is_known",),
    ),
    Mutation(
        "trial-ended-before-it-showed",
        "A plan on trial has the time that it takes to show what it is worth.",
        "min(elapsed, self._pace(elapsed)) > proven",
        "self._pace(elapsed) > proven",
        ("sync/rounds/test_replanning.py::test_a_trial_that_has_shown_what_it_is_worth_ends_for_what_is_known",),
    ),
    Mutation(
        "trial-looked-at-late",
        "A plan on trial is looked at when it could first be given up for one that is known.",
        "            self._next = min(self._next, began + proven + _MOMENT)\n",
        "            pass\n",
        ("sync/rounds/test_replanning.py::test_a_trial_that_has_shown_what_it_is_worth_ends_for_what_is_known",),
    ),
    Mutation(
        "detour-on-one-measurement",
        "An attempt is given up for another plan only if its own pace confirms what the links say.",
        "return min((1 - self._done) * running, self._pace(elapsed))",
        "return (1 - self._done) * running",
        ("sync/rounds/test_replanning.py::test_a_wrong_measurement_alone_ends_nothing",),
    ),
)
