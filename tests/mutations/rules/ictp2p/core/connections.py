"""The rules of `ictp2p/core/connections.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "parting-taken-for-death",
        "The end of a connection that both sides gave up is evidence of nothing.",
        "            if not agreed:\n",
        "            if peer:\n",
        ("core/test_stack_ways.py::test_a_large_mesh_is_sparse_and_yet_everybody_knows_and_reaches_everybody",),
    ),
    Mutation(
        "parted-neighbour-kept",
        "Who parts by agreement is no neighbour any more, from the moment at which the connection ends.",
        "            self._context.dirty = True\n            if not agreed:\n",
        "            if not agreed:\n",
        ("core/test_stack_ways.py::test_a_large_mesh_is_sparse_and_yet_everybody_knows_and_reaches_everybody",),
    ),
)
