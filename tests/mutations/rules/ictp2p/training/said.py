"""The rules of `ictp2p/training/said.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "wishes-said-once-for-good",
        "Who wants into its cluster's group after it has left says so again.",
        "self._wanted, self._training = None, False",
        "self._training = False",
        ("training/test_said.py::test_the_peer_is_told_what_it_does_not_know_and_nothing_twice",),
    ),
)
