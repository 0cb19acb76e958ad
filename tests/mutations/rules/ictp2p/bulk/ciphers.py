"""The rules of `ictp2p/bulk/ciphers.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "cipher-of-one-end",
        "Both ends of a connection seal by a cipher that both of them have.",
        "if one[cipher] and other[cipher]]",
        "if one[cipher]]",
        ("bulk/test_ciphers.py::test_two_ends_take_one_cipher_that_both_have_and_that_costs_them_least",),
    ),
)
