"""The rules of `ictp2p/runtime/data_phase.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "round-without-roots",
        "In a round of the mesh each element is made in one place, and copied.",
        "frozenset({plan.BROADCAST, plan.REDUCE, plan.ONE_SHOT, plan.GROUPS})",
        "frozenset({plan.BROADCAST, plan.REDUCE, plan.GROUPS})",
        ("runtime/test_data_phase.py::test_a_round_is_done_by_plans_of_its_kind",),
    ),
    Mutation(
        "groups-of-nobody",
        "A round in which all average all is not done by a plan of groups, of which there may be none.",
        "plan.ONE_SHOT, plan.GROUPS})",
        "plan.ONE_SHOT})",
        ("runtime/test_data_phase.py::test_a_round_is_done_by_plans_of_its_kind",),
    ),
    Mutation(
        "groups-without-a-fence",
        "Groups that move at once are fenced off from each other as attempts are.",
        "return RoundTag(opened.lineage, opened.round, opened.attempt, one.digest())",
        'return RoundTag(opened.lineage, opened.round, opened.attempt, b"")',
        (
            "sim/test_training.py::test_clusters_that_meet_in_pairs_are_fenced_off_from_each_other",
            "sim/test_training.py::test_groups_that_share_modules_are_fenced_off_from_each_other",
        ),
    ),
    Mutation(
        "root-brings-what-it-has",
        "A root copies to others what it was given, whole, and never what happens to lie in its outputs.",
        "if due and (source.elements != due or",
        "if due and (source.elements > due or",
        ("runtime/test_data_phase.py::test_a_root_that_does_not_bring_what_is_copied_from_it_is_told_so",),
    ),
)
