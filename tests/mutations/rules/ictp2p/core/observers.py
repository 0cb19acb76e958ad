"""The rules of `ictp2p/core/observers.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "observers-without-number",
        "Whoever knows the token and only looks on takes so many connections of a peer, and no more.",
        "        if len(self._until) >= _AT_ONCE:\n",
        "        if False:\n",
        ("core/test_observers.py::test_the_seventeenth_is_told_how_many_there_are_and_comes_in_once_one_has_gone",),
    ),
)
