"""The rules of `ictp2p/identity.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "key-of-another-proven",
        "A proof is of the very key that was on the card.",
        "not verify(public_key, _BULK_KEY + bulk_public, signature)",
        "not verify(public_key, _BULK_KEY + bulk_public, signature) and not signature",
        ("test_identity.py::test_a_bulk_key_is_proven_by_whose_it_is_and_by_nobody_else",),
    ),
)
