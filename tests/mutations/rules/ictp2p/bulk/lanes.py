"""The rules of `ictp2p/bulk/lanes.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "taken-for-the-first-one",
        "What ends with a fetch is nobody's first connection to a peer.",
        "                yield made\n",
        "                yield made\n            else:\n                made.hang_up(ConnectionLost(''))\n",
        ("bulk/test_lanes.py::test_what_is_taken_for_the_first_one_stays",),
    ),
)
