"""The rules of `ictp2p/sync/rounds/modules.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "copied-from-who-is-behind",
        "What a newcomer gets of a module is what the others hold of it, and not another newcomer's.",
        "root = next((c for c in holders[key] if not cards[c].behind), newest)",
        "root = newest",
        ("sync/rounds/test_modules.py::test_who_is_behind_is_never_copied_from_while_another_is_not",),
    ),
    Mutation(
        "begun-anew-by-who-comes-first",
        "Where all who hold a module are behind, what most rounds are in goes on, and not what has just begun.",
        "newest = max(holders[key], key=lambda cluster: cards[cluster].rounds)",
        "newest = holders[key][0]",
        (
            "sync/rounds/test_modules.py::test_where_all_are_behind_what_most_rounds_are_in_is_copied",
            "sync/policies/test_dipaco.py::test_a_pool_goes_on_from_its_clusters_own_files",
        ),
    ),
)
