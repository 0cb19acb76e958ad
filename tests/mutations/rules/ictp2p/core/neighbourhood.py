"""The rules of `ictp2p/core/neighbourhood.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "held-for-good",
        "A link over which no route led yet carries them as soon as it turns out to be needed.",
        "if self._serves(self._leaders[c])):",
        "if not c):",
        ("core/test_stack_ways.py::test_a_large_mesh_is_sparse_and_yet_everybody_knows_and_reaches_everybody",),
    ),
)
