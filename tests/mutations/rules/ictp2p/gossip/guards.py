"""The rules of `ictp2p/gossip/guards.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "suspect-guards",
        "Whoever follows a suspect on the ring has another guard: two neighbours may have died together.",
        "if m.status is Status.ALIVE and n != self._me",
        "if m.status.present and n != self._me",
        ("gossip/test_guards.py::test_whoever_follows_a_suspect_has_another_guard",),
    ),
    Mutation(
        "suspects-asked-by-all",
        "A suspect is asked out of turn by a few members only: in a large group all would come as a burst.",
        "return there - here + around < GUARDS",
        "return True",
        ("gossip/test_guards.py::test_a_suspect_is_asked_by_as_many_as_are_wanted_and_then_by_nobody",),
    ),
)
