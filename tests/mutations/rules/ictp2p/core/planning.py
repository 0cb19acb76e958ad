"""The rules of `ictp2p/core/planning.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "relay-that-others-list",
        "Nothing is planned over the dead, whoever still lists them.",
        " if link.neighbour not in dead}",
        "}",
        ("core/test_planning.py::test_nothing_is_planned_over_the_dead",),
    ),
    Mutation(
        "room-of-others",
        "The coordinator asks of nobody more room than its card gives.",
        "max(limit.room, STAGING_BYTES)",
        "2**30",
        ("core/test_planning.py::test_a_plan_asks_of_nobody_more_room_than_its_card_gives",),
    ),
    Mutation(
        "relays-links-forgotten",
        "What is relayed takes its share of the links of the relay.",
        "    return LinkEstimate(width, delay, card.leader)",
        "    return LinkEstimate(width, delay)",
        ("core/test_planning.py::test_what_is_relayed_takes_its_share_of_the_links_of_the_relay",),
    ),
    Mutation(
        "cores-taken-for-lines",
        "Links inside one machine are no lines that a schedule may spare.",
        "    return replace(link, bandwidth=UNMEASURED)",
        "    return link",
        ("core/test_planning.py::test_on_one_machine_cores_count_and_not_what_its_links_were_measured_at",),
    ),
    Mutation(
        "plan-for-other-pairs",
        "Who averages with whom follows from what was decided; a plan that says otherwise is refused.",
        "return None if planned == due else",
        "return None if planned else",
        ("core/test_planning.py::test_a_plan_for_other_pairs_is_refused",),
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
    Mutation(
        "groups-one-after-the-other",
        "Groups that share nobody move at once: a round is not given the sum of their seconds.",
        "    seconds = max(busy.values(), default=0.0)\n",
        "    seconds = sum(one.seconds for one in made)\n",
        ("core/test_planning.py::test_groups_move_at_once_and_a_round_takes_as_long_as_whoever_is_in_most_of_them",),
    ),
    Mutation(
        "relays-at-no-price",
        "Groups that go over one relay share its lines.",
        "    involved = relays.union(group.members)\n",
        "    involved = frozenset(group.members)\n",
        ("core/test_planning.py::test_pairs_that_meet_over_one_relay_share_its_lines",),
    ),
)
