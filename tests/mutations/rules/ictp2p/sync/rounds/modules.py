"""The rules of `ictp2p/sync/rounds/modules.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "copied-from-who-is-behind",
        "What a newcomer gets of a module is what the others hold of it, and not another newcomer's.",
        "return next((c for c in held if not cards[c].lacks(held[c])), newest)",
        "return newest",
        ("sync/rounds/test_modules.py::test_where_all_are_behind_what_most_rounds_are_in_is_copied",),
    ),
    Mutation(
        "begun-anew-by-who-comes-first",
        "Where all who hold a module are behind, what most rounds are in goes on, and not what has just begun.",
        "newest = max(held, key=lambda c: (held[c].rounds, not cards[c].behind))",
        "newest = next(iter(held))",
        (
            "sync/rounds/test_modules.py::test_where_all_are_behind_what_most_rounds_are_in_is_copied",
            "sync/policies/test_dipaco_deaths.py::test_a_pool_goes_on_from_its_clusters_own_files",
        ),
    ),
    Mutation(
        "agreed-on-though-begun-anew",
        "What was begun anew is copied to those who come back with less of it only.",
        "return self.behind or held.young",
        "return self.behind",
        (
            "sync/rounds/test_modules.py::test_what_was_begun_anew_gives_way_to_more_that_was_trained_before",
            "sync/policies/test_dipaco_deaths.py::test_who_was_away_when_a_module_was_begun_anew_brings_back_what_it_knows",
        ),
    ),
    Mutation(
        "copied-though-the-same",
        "Between those who were in the last round nothing is copied.",
        "return card.behind or (held.young and root.behind)",
        "return card.behind or held.young",
        ("sync/rounds/test_modules.py::test_what_was_begun_anew_gives_way_to_more_that_was_trained_before",),
    ),
    Mutation(
        "tied-with-who-is-behind",
        "Of two whose modules have as many rounds in them, the one that was in the last round goes on.",
        "key=lambda c: (held[c].rounds, not cards[c].behind))",
        "key=lambda c: (held[c].rounds, cards[c].behind))",
        ("sync/rounds/test_modules.py::test_what_was_begun_anew_gives_way_to_more_that_was_trained_before",),
    ),
)
