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
        "        self._holds(behind=True)\n        if mine:\n            self._land(self.fragments[self._captured])",
        "        self._holds(behind=True)",
        ("sync/policies/test_dipaco.py::test_an_heir_without_the_result_does_not_bring_it_twice",),
    ),
    Mutation(
        "name-taken-for-content",
        "Who has missed rounds says how many are in what it holds, and not how many were decided.",
        "card.rounds if rounds is None else rounds)",
        "self.rounds if rounds is None else rounds)",
        ("sim/test_policies_at_random.py::test_stories_of_paths_that_ended_badly_do_so_no_more",),
    ),
    Mutation(
        "checkpoint-of-no-rounds",
        "What a checkpoint holds has the rounds in it that it was saved with.",
        "        self._holds(self.rounds, behind=True)\n",
        "",
        ("sync/policies/test_dipaco.py::test_a_pool_goes_on_from_its_clusters_own_files",),
    ),
)
