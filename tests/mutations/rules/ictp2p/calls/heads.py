"""The rules of `ictp2p/calls/heads.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "newcomers-count-from-one",
        "Newcomers that are alone begin a sequence of calls of their own, above the one of who sleeps meanwhile.",
        "(max(self.newest, Place(*generation)) if anew else self.newest).next",
        "self.newest.next",
        ("calls/test_heads.py::test_who_slept_while_newcomers_began_is_in_another_sequence_than_they",),
    ),
    Mutation(
        "witness-that-knows-less",
        "Of those who saw a round one shows it that knows whose tensors are in it.",
        "key=lambda rank: (self.all[rank].flags & Flag.TOLD, -rank)",
        "key=lambda rank: -rank",
        (
            "calls/test_heads.py::test_who_saw_the_newest_round_shows_it_and_rather_one_that_knows_whose_tensors_are_in_it",
        ),
    ),
)
