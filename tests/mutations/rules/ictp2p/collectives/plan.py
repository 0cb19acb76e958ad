"""The rules of `ictp2p/collectives/plan.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "codec-not-as-asked",
        "Elements are not rounded unless that was asked for, whatever the coordinator plans.",
        "if one.codec not in allowed), None)",
        "if not allowed), None)",
        ("collectives/test_plan.py::test_the_codec_is_the_one_that_was_asked_for",),
    ),
    Mutation(
        "receipts-astray",
        "The receipts of a reduction take its reduce tree: else a window would open for what nobody has used.",
        "if plan.kind == REDUCE and share.broadcast_parents != share.reduce_parents:",
        "if False:",
        ("collectives/test_plan.py::test_every_broken_rule_is_named",),
    ),
    Mutation(
        "plan-unpacked-without-bound",
        "What a packed plan comes to is bounded, however few bytes it was.",
        "unpacking.decompress(data, MAX_UNPACKED_BYTES)",
        "unpacking.decompress(data)",
        ("collectives/test_plan.py::test_what_a_packed_plan_comes_to_is_bounded",),
    ),
    Mutation(
        "strangers-in-a-group",
        "Groups are of those who take part in the round.",
        " or not set(group.participants) <= set(participants)\n",
        "\n",
        ("core/test_grouping.py::test_a_group_that_is_no_plan_of_its_own_is_refused",),
    ),
)
