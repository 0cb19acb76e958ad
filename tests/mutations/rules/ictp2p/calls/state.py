"""The rules of `ictp2p/calls/state.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "back-to-what-was-agreed",
        "A newcomer that leads its cluster brings what its mates have come to, not what was agreed before.",
        "self._shared, idle).reach(agreed)",
        "self._shared, idle).reach(self._shared.agreed)",
        ("sim/test_shared_state.py::test_who_comes_back_to_lead_takes_what_its_mates_have_come_to",),
    ),
    Mutation(
        "state-refused-twice",
        "The round that a refused `sync_state` found the others in is accounted for by that refusal.",
        "                self._outlast(opened)\n",
        "",
        ("sim/test_call_newcomers.py::test_a_call_that_is_refused_is_one_error_and_the_next_one_is_the_others_next",),
    ),
)
