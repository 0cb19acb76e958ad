"""The rules of `ictp2p/sync/rounds/opening.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "opens-with-whoever-is-ready",
        "Where not all that are READY fit into a decision some miss the round, and not all.",
        "parts = fitting(bare, ready)",
        "parts = ready",
        ("sync/rounds/test_room.py::test_whoever_is_ready_with_whatever_to_say_a_decision_can_be_sent",),
    ),
    Mutation(
        "newcomers-outvote-the-others",
        "Newcomers go to the call that the others are at, and never the other way around.",
        "(settled or standing).items()",
        "standing.items()",
        ("sync/rounds/test_opening.py::test_newcomers_go_to_the_call_that_the_others_are_at",),
    ),
)
