"""The rules of `ictp2p/sync/state/draft.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "hashed-before-all-of-it-is-final",
        "A chunk is hashed once all of it that is written to is final.",
        "if not self._open[chunk]:",
        "if chunk not in whole:",
        ("sync/state/test_draft.py::test_the_digests_are_those_of_what_is_sealed",),
    ),
    Mutation(
        "untold-chunks-left-out",
        "A seal is of all chunks, those too that nobody said were final.",
        "self._digests | self._halves.digests(self._halves.touched - self._digests.keys())",
        "self._digests",
        ("sync/state/test_draft.py::test_the_digests_are_those_of_what_is_sealed",),
    ),
)
