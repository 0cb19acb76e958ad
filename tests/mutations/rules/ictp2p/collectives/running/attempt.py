"""The rules of `ictp2p/collectives/running/attempt.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "time-for-reaching-besides",
        "What it takes to reach the others is part of the time of a collective.",
        "loop.call_at(over, _expire",
        "loop.call_later(profile.total, _expire",
        ("bulk/test_giving_up.py::test_what_it_takes_to_reach_the_others_is_part_of_the_time",),
    ),
)
