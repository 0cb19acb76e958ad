"""The rules of `ictp2p/runtime/repetition.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-line-for-each-round",
        "What is to be warned of in each round is in the log once in a while.",
        "        if before is not None and now < before.at + PERIOD:\n",
        "        if False:\n",
        ("runtime/test_repetition.py::test_what_is_said_each_round_is_logged_once_in_a_while_and_with_how_often",),
    ),
)
