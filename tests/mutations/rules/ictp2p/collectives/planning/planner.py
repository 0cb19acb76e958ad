"""The rules of `ictp2p/collectives/planning/planner.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "way-untold",
        "A plan says for how long a chunk is on its way: by that who is ahead does not wait for it.",
        ", way=chosen.way)",
        ")",
        ("collectives/planning/test_planner.py::test_a_plan_says_for_how_long_a_chunk_is_on_its_way",),
    ),
    Mutation(
        "one-shot-unasked",
        "Nobody plans without roots but for who said that its sums come out alike everywhere.",
        "in_one_shot(job) if request.small and codec",
        "in_one_shot(job) if codec",
        ("collectives/planning/test_planner.py::test_what_is_small_goes_in_one_shot_where_it_may",),
    ),
)
