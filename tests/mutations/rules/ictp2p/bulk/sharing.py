"""The rules of `ictp2p/bulk/sharing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "what-shares-the-memory-of-a-connection-knows-it",
        "What shared the memory of a connection that has ended does not know it.",
        "        self._connection = self._rings = None  # in",
        "        self._rings = None  # in",
        ("bulk/test_connection.py::test_one_that_has_ended_leaves_nothing_to_the_garbage_collector",),
    ),
)
