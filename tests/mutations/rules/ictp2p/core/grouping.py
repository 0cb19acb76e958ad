"""The rules of `ictp2p/core/grouping.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "plan-for-other-pairs",
        "Who averages with whom follows from what was decided; a plan that says otherwise is refused.",
        "return None if planned == due else",
        "return None if planned else",
        ("core/test_grouping.py::test_a_plan_for_other_pairs_is_refused",),
    ),
    Mutation(
        "groups-one-after-the-other",
        "Groups that share nobody move at once: a round is not given the sum of their seconds.",
        "    seconds = max(busy.values(), default=0.0)\n",
        "    seconds = sum(one.seconds for one in made)\n",
        ("core/test_grouping.py::test_groups_move_at_once_and_a_round_takes_as_long_as_whoever_is_in_most_of_them",),
    ),
    Mutation(
        "relays-at-no-price",
        "Groups that go over one relay share its lines.",
        "    involved = relays.union(group.members)\n",
        "    involved = frozenset(group.members)\n",
        ("core/test_grouping.py::test_pairs_that_meet_over_one_relay_share_its_lines",),
    ),
)
