"""The rules of `ictp2p/collectives/running/execute.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "room-unlimited-here",
        "A plan that asks for more room than we give is refused before anything is read.",
        "    if asked > links.slots.limit:",
        "    if asked < 0:",
        ("collectives/running/test_execute.py::test_a_plan_that_asks_for_more_room_than_there_is_is_refused",),
    ),
    Mutation(
        "output-over-input",
        "Results may not be asked for where the contribution lies.",
        "    if overlap and not in_place:\n",
        "    if overlap and not in_place and not inputs:\n",
        ("collectives/running/test_execute.py::test_an_output_may_not_share_memory_with_an_input",),
    ),
)
