"""The rules of `ictp2p/sync/policies/dipaco.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "newcomer-trains-from-its-own",
        "Who is behind gets what others hold of its modules before the step that it takes with them.",
        "        for key in self._received():",
        "        for key in list[bytes]():",
        ("sync/policies/test_dipaco_deaths.py::test_a_newcomer_gets_its_modules_from_who_holds_them_before_it_trains",),
    ),
    Mutation(
        "modules-counted-twice",
        "What an heir's leader had brought is in the modules of others, and is not brought again.",
        "        self._holds(behind=True)\n        if mine:\n            self._land(self.fragments[self._captured])",
        "        self._holds(behind=True)",
        ("sync/policies/test_dipaco_deaths.py::test_an_heir_without_the_result_does_not_bring_it_twice",),
    ),
    Mutation(
        "name-taken-for-content",
        "Who has missed rounds says how many are in what it holds, and not how many were decided.",
        "rounds.get(module.key, module.rounds)",
        "rounds.get(module.key, self.rounds)",
        ("sim/test_policies_at_random.py::test_stories_of_paths_that_ended_badly_do_so_no_more",),
    ),
    Mutation(
        "checkpoint-of-no-rounds",
        "What a checkpoint holds has the rounds in it that it was saved with.",
        "self._holds(dict.fromkeys(self._modules, self.rounds), behind=True)",
        "self._holds(behind=True)",
        ("sync/policies/test_dipaco_deaths.py::test_a_pool_goes_on_from_its_clusters_own_files",),
    ),
    Mutation(
        "begun-anew-and-as-old-as-the-mesh",
        "What began anew has those rounds in it that it was in, and not those of the state that it joined.",
        "{key: held.rounds + 1 for key, held in going_on.items()}",
        "dict.fromkeys(going_on, self.rounds)",
        (
            "sync/policies/test_dipaco_deaths.py::test_who_was_away_when_a_module_was_begun_anew_brings_back_what_it_knows",
        ),
    ),
    Mutation(
        "young-for-ever",
        "Room is kept for as long as another may hold more rounds, which are at most those before a module began.",
        "young=count < self.rounds - count",
        "young=count < self.rounds",
        ("sync/policies/test_dipaco.py::test_a_module_of_one_cluster_needs_no_room_once_nobody_can_hold_more",),
    ),
    Mutation(
        "heir-without-its-mates-card",
        "Who joins a cluster says of its modules what its mates say, and has as much room.",
        'self._holdings.card = Card.decode(carried["modules"])',
        "self._holds(behind=True)",
        ("sync/policies/test_dipaco.py::test_who_joins_a_cluster_says_what_its_mates_say",),
    ),
)
