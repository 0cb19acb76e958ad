"""The rules of `ictp2p/torch_backend/overloads.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-tensor-for-the-list-of-its-rows",
        "One tensor in the place of a list is that tensor, and not the list of its rows.",
        "    if not any(isinstance(piece, Tensor) for piece in pieces):",
        "    if pieces:",
        ("torch_backend/test_overloads.py::test_both_forms_of_each_call_give_the_same",),
    ),
)
