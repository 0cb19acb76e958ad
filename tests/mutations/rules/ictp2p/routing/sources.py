"""The rules of `ictp2p/routing/sources.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "feasibility-not-strict",
        "An offer is taken only if it is strictly better than all that was advertised: equals never choose each other.",
        "return mine is None or offer.better_than(mine)",
        "return mine is None or not mine.better_than(offer)",
        ("routing/test_sources.py::test_an_equal_distance_is_not_feasible",),
    ),
    Mutation(
        "feasibility-forgotten-while-told",
        "A feasibility distance lives for as long as a neighbour may hold what it was told.",
        "            if not stands(key):\n",
        "            if key:\n",
        ("routing/test_sources.py::test_a_distance_lives_until_it_is_taken_back_and_a_lifetime_more",),
    ),
)
