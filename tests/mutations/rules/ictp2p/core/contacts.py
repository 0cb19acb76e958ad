"""The rules of `ictp2p/core/contacts.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "parted-before-it-is-met",
        "Who has no leader yet keeps what it came in over.",
        "None not in leaders and ",
        "",
        ("core/test_contacts.py::test_who_has_no_leader_yet_keeps_what_it_came_in_over_and_so_do_those_who_let_it_in",),
    ),
    Mutation(
        "leaders-part",
        "In a mesh that is complete the leaders stay connected.",
        " and leaders != (context.me, peer)",
        "",
        ("core/test_contacts.py::test_what_is_not_between_two_leaders_can_be_spared_once_there_is_a_quorum",),
    ),
    Mutation(
        "workers-stay-connected",
        "What a worker dialed to find the others is given up once it has found them.",
        " or (between and context.m.rounds.in_touch())",
        "",
        ("sim/test_few_connections.py::test_after_a_restart_of_all_or_a_partition_nobody_is_connected_to_everybody",),
    ),
    Mutation(
        "left-for-all-of-it",
        "Who is connected to a worker of a cluster goes by that, whoever said goodbye for the cluster.",
        " and name not in here",
        "",
        (
            "core/test_stack_dialing.py::"
            "test_a_cluster_that_was_said_to_have_left_by_one_half_of_it_is_dialed_once_a_worker_of_it_is_met",
        ),
    ),
    Mutation(
        "former-life-dialed",
        "A dead worker is not dialed where a living one has its address.",
        "(card.peer for card in dead if card.endpoint(mate=True) in taken)",
        "(card.peer for card in dead if not taken)",
        ("core/test_stack_dialing.py::test_a_dead_mate_is_not_dialed_where_a_living_one_has_its_address",),
    ),
    Mutation(
        "former-life-dialed-again",
        "Nor is it when membership has forgotten the dead worker, whose card is kept for longer.",
        "return mate in self._dead if known is None else",
        "return False if known is None else",
        ("core/test_stack_dialing.py::test_a_dead_mate_is_not_dialed_where_a_living_one_has_its_address",),
    ),
)
