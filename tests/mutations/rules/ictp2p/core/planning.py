"""The rules of `ictp2p/core/planning.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "room-of-others",
        "The coordinator asks of nobody more room than its card gives.",
        "max(limit.room, STAGING_BYTES)",
        "2**30",
        ("core/test_planning.py::test_a_plan_asks_of_nobody_more_room_than_its_card_gives",),
    ),
    Mutation(
        "copied-from-another",
        "What is copied is the named cluster's, and each part the one of its own place.",
        "if share.start < share.stop and not first <= share.start < share.stop <= end:",
        "if False:",
        (
            "core/test_planning.py::test_a_plan_with_the_roots_of_another_round_is_refused",
            "runtime/test_participation.py::test_a_copy_from_another_cluster_than_the_one_named_fails_the_attempt",
        ),
    ),
)
