"""The rules of `ictp2p/sync/rounds/absence.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

_HERE = "sync/rounds/test_absence.py::"

MUTATIONS: Final = (
    Mutation(
        "absent-for-good",
        "A cluster that takes part again is absent no longer.",
        "and name not in here]",
        "and (name not in here or name in self._spells)]",
        (f"{_HERE}test_who_was_due_in_several_rounds_and_in_none_of_them_is_reported_once",),
    ),
    Mutation(
        "absent-though-not-due",
        "Nobody is said to be absent who does not mean to train.",
        "if views[name].training and ",
        "if ",
        (f"{_HERE}test_nobody_is_reported_for_whom_nobody_waits",),
    ),
    Mutation(
        "absent-at-once",
        "A newcomer has the time of several straggler timeouts, however fast rounds follow each other.",
        " or now < spell.since + self._least:",
        ":",
        (f"{_HERE}test_rounds_that_follow_each_other_fast_report_nobody_who_has_just_come",),
    ),
    Mutation(
        "absent-where-some-are-enough",
        "Nobody is absent from a round for which some of the clusters are enough.",
        " and spec.quorum == 1.0\n",
        "\n",
        (f"{_HERE}test_rounds_that_wait_for_nobody_in_particular_report_nobody",),
    ),
    Mutation(
        "absent-from-nothing",
        "A round that came to nothing was missed by nobody.",
        " or not value.committed:",
        ":",
        (f"{_HERE}test_a_round_that_comes_to_nothing_counts_for_nothing",),
    ),
)
