"""The rules of `ictp2p/bulk/lanes.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "taken-for-the-first-one",
        "What ends with a fetch is nobody's first connection to a peer.",
        "            if self._pool.warm(peer) is not first:\n",
        "            if False:\n",
        ("bulk/test_lanes.py::test_there_are_none_where_they_would_be_taken_for_the_first_one",),
    ),
)
