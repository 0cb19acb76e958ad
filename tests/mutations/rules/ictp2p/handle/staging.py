"""The rules of `ictp2p/handle/staging.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "own-part-left-where-the-peer-put-it",
        "A result is where it belongs before it is finished, also the part that was brought from here.",
        "if self._arrived < self._size:",
        "if self._arrived > self._size:",
        ("handle/test_staging.py::test_results_are_where_they_belong_before_anything_is_told_of_them",),
    ),
)
