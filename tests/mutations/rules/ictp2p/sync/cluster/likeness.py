"""The rules of `ictp2p/sync/cluster/likeness.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "options-told-at-the-first-difference",
        "A schedule that is set a step earlier on one worker than on another is nothing to tell of.",
        "return self._unlike >= PATIENCE and not self._told",
        "return self._unlike >= 1 and not self._told",
        ("sync/cluster/test_likeness.py::test_who_sets_its_rate_some_steps_later_is_not_told_of",),
    ),
    Mutation(
        "options-asked-for-by-each-alone",
        "All workers of a group ask for the words at the same step, or none does.",
        "if heads.unlike and heads.asks:",
        "if heads.unlike and self._unlike > PATIENCE and not self._told:",
        ("sync/cluster/test_likeness.py::test_who_comes_later_is_told_as_well_and_those_who_know_are_not_told_again",),
    ),
)
