"""The rules of `ictp2p/gossip/suspicion.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "suspect-asked-for-ever",
        "A guard that has said what it heard of a suspect goes on with its charge.",
        "return self._confirmed < self._wanted and origin not in self._origins",
        "return self._confirmed < self._wanted",
        ("gossip/test_guards.py::test_a_suspect_is_asked_by_as_many_as_are_wanted_and_then_by_nobody",),
    ),
    Mutation(
        "postponed-until-the-next-voice",
        "Time in which a process could hear nobody does not count either once others join in its suspicion.",
        "        self.started += seconds\n",
        "",
        ("gossip/test_suspicion.py::test_postponed_time_does_not_count_once_others_confirm_either",),
    ),
)
