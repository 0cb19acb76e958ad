"""The rules of `ictp2p/sync/rounds/room.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "left-out-for-good",
        "Whoever there was no room for in a round goes first in the next.",
        "return credits.get(part.cluster, 0), drawn.digest()",
        "return 0, drawn.digest()",
        ("sync/rounds/test_room.py::test_who_was_left_out_goes_first_in_the_next_round",),
    ),
)
