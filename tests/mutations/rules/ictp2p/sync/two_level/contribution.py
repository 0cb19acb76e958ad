"""The rules of `ictp2p/sync/two_level/contribution.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "all-time-taken",
        "A round that is put off still ends before training waits for it.",
        "covered - 2 * self._moving",
        "covered",
        (
            "sync/two_level/test_contribution.py::test_a_round_may_begin_as_late_as_it_still_ends_under_cover_of_training",
        ),
    ),
    Mutation(
        "late-counted-whole",
        "Training that missed rounds counts less in the next one, where the policy says so.",
        "return trained / math.sqrt(1 + missed)",
        "return trained",
        ("sync/two_level/test_late.py::test_what_missed_its_round_is_in_the_next_one_with_its_weight",),
    ),
    Mutation(
        "onlooker-left-behind",
        "A cluster whose workers all look on has the result of each round.",
        "return self._progress.brought > 0.0 or self._sampler is None or not self._sampler.ended",
        "return self._progress.brought > 0.0",
        ("sync/two_level/test_looking_on.py::test_it_is_as_if_they_were_not_there_but_that_they_have_the_result",),
    ),
    Mutation(
        "moved-by-hand-and-ignored",
        "A setting of the outer optimizer that is changed after the policy was made is refused, and not ignored.",
        "            self._weights.check()\n",
        "",
        ("sync/optimizers/test_outer_schedule.py::test_a_setting_that_is_changed_by_hand_is_refused_by_name",),
    ),
    Mutation(
        "leaders-step-at-the-end",
        "A leader steps from what has arrived while the rest is on its way.",
        "            self._weights.arrived(start, stop)\n",
        "",
        ("sync/two_level/test_policy_rounds.py::test_leader_and_followers_step_while_the_average_arrives",),
    ),
)
