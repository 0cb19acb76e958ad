"""The rules of `ictp2p/handle/framing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "frames-without-end",
        "A length is checked before anything is kept for it.",
        "    if length > MOST:\n",
        "    if length < 0:\n",
        ("handle/test_messages.py::test_lengths_are_checked_before_anything_is_kept",),
    ),
)
