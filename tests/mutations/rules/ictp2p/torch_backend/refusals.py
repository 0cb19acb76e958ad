"""The rules of `ictp2p/torch_backend/refusals.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "refused-at-one-rank-alone",
        "What one rank is refused fails on all at once.",
        "        if error is not None:\n",
        "        if False:\n",
        ("torch_backend/test_refusals.py::test_what_one_rank_is_refused_fails_on_all_and_says_what_and_where",),
    ),
)
