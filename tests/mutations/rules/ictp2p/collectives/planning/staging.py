"""The rules of `ictp2p/collectives/planning/staging.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "room-not-cut",
        "Contributions never have more room at a participant than it gives.",
        "where=asked > left)",
        "where=asked < 0)",
        ("collectives/planning/test_staging.py::test_room_is_never_exceeded_and_is_enough_where_it_can_be",),
    ),
    Mutation(
        "asking-for-room-gives-less",
        "Who asks for room has no less than who asks for none.",
        "    granted += _cut(",
        "    _ = _cut(",
        ("collectives/planning/test_staging.py::test_who_asks_for_room_has_no_less_than_who_asks_for_none",),
    ),
    Mutation(
        "room-asked-for-what-always-goes-ahead",
        "Nobody asks for room for what a sender always sends ahead.",
        "partial) * partial, AHEAD_BYTES) >= needs",
        "partial) * partial, 0) >= needs",
        (
            "collectives/planning/test_planner_chunks.py::test_on_one_machine_long_tensors_travel_in_whole_chunks_and_ask_for_no_room",
        ),
    ),
)
