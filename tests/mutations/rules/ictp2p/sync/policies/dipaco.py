"""The rules of `ictp2p/sync/policies/dipaco.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "newcomer-trains-from-its-own",
        "Who is behind gets what others hold of its modules before the step that it takes with them.",
        "        for key in self._received():",
        "        for key in list[bytes]():",
        ("sync/policies/test_dipaco.py::test_a_newcomer_gets_its_modules_from_who_holds_them_before_it_trains",),
    ),
    Mutation(
        "modules-counted-twice",
        "What an heir's leader had brought is in the modules of others, and is not brought again.",
        "        self._behind(True)\n        if mine:\n            self._land(self.fragments[self._captured])",
        "        self._behind(True)",
        ("sync/policies/test_dipaco.py::test_an_heir_without_the_result_does_not_bring_it_twice",),
    ),
)
