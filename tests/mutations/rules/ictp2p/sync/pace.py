"""The rules of `ictp2p/sync/pace.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "paced-by-onlookers",
        "How fast a cluster looks on says nothing about how many steps others are to take.",
        "self._step if self._trained else 0.0",
        "self._step",
        ("sync/two_level/test_looking_on.py::test_their_steps_are_no_measure_of_those_who_train",),
    ),
    Mutation(
        "long-phases-extrapolated",
        "After a phase longer than the reference the outer optimizer takes one step: more would overshoot.",
        "return min(1.0, since / self.reference)",
        "return since / self.reference",
        ("sync/test_pace.py::test_a_longer_phase_is_stepped_after_once",),
    ),
    Mutation(
        "uneven-turns-cut-off",
        "Each fragment has its turn every H steps exactly, also where their number does not divide H.",
        "return (fragment + 1) * steps // fragments - fragment * steps // fragments",
        "return steps // fragments",
        ("sync/test_pace.py::test_every_fragment_has_its_turn_once_per_phase",),
    ),
    Mutation(
        "phase-of-another-fragment",
        "A fragment's outer step is corrected for what was trained since its own last sync.",
        'since = self._taken(counters, fragment) - counters[f"{_SYNCED}{fragment}"]',
        "since = counters[_STEPS]",
        ("sync/test_pace.py::test_each_fragments_phase_is_what_it_was_trained_for",),
    ),
    Mutation(
        "apart-for-as-long-as-the-link-asks",
        "A phase is no longer than what has been trained so far allows, however slow the link.",
        "math.isqrt(waits * counters[_TAKEN] // step)",
        "self._most",
        ("sync/test_pace.py::test_a_phase_is_no_longer_than_what_is_trained_allows",),
    ),
    Mutation(
        "schedule-of-whole-phases",
        "With fragments a round is a part of a phase, in the steps that are agreed as in those that are taken.",
        "return phases * self.steps + rest * self.steps // self.fragments",
        "return phases * self.steps + rest * self.steps",
        ("sync/test_pace.py::test_the_steps_that_are_agreed_are_those_of_who_was_there_from_the_beginning",),
    ),
)
