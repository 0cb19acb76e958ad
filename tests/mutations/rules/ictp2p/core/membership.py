"""The rules of `ictp2p/core/membership.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-goodbye-is-for-ever",
        "Who said goodbye and leads again is dialed: it may be unable to dial us.",
        "            self._meetings.departed.discard(card.leader)\n",
        "            pass\n",
        ("core/test_stack_dialing.py::test_who_said_goodbye_and_is_back_is_dialed_by_one_that_it_cannot_dial",),
    ),
)
