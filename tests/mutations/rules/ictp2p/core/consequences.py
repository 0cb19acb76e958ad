"""The rules of `ictp2p/core/consequences.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "bound-and-not-heard-of",
        "A claim that a round has bound is known to whoever leads beside it.",
        "                self._bound(participants)\n",
        "                pass\n",
        ("core/test_stack.py::test_a_claim_that_a_round_has_bound_is_heard_of_by_who_leads_beside_it",),
    ),
)
