"""The rules of `ictp2p/handle/questions.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "state-kept-for-who-is-stopped",
        "A piece of a state is made for a peer's process when the one before it has left.",
        "            self._flush()\n",
        "",
        ("handle/test_process_ends.py::test_one_piece_of_a_state_is_made_at_a_time_and_the_next_one_when_it_has_left",),
    ),
)
