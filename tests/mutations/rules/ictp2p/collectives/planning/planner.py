"""The rules of `ictp2p/collectives/planning/planner.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "one-shot-unasked",
        "Nobody plans without roots but for who said that its sums come out alike everywhere.",
        "in_one_shot(job) if request.small and codec",
        "in_one_shot(job) if codec",
        ("collectives/planning/test_planner.py::test_what_is_small_goes_in_one_shot_where_it_may",),
    ),
)
