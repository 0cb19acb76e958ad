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
)
