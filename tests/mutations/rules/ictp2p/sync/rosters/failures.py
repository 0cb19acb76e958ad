"""The rules of `ictp2p/sync/rosters/failures.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "late-though-the-deadline-is-not-over",
        "Nobody is left out for being late at a meeting that broke before its deadline.",
        'if breach.kind == "unmet":',
        "if True:",
        (
            "sync/rosters/test_absences.py::TestLeader"
            "::test_a_group_that_broke_before_its_meetings_deadline_says_nothing_of_who_is_late",
        ),
    ),
    Mutation(
        "refused-library-named-again",
        "Workers between whom a collective library did not come up are not asked to use it together again.",
        "library for who, library in self._refusals if who == frozenset(members)",
        "library for who, library in self._refusals if who == members",
        ("sync/rosters/test_roster_library.py::TestLibrary::test_a_refusal_has_the_same_workers_fall_back_together",),
    ),
)
