"""The rules of `ictp2p/core/post.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "into-a-cut-line",
        "What is said goes around a leader of whom nothing is heard, though its connection stands.",
        "if target in self.open and target not in self._neighbourhood.lost():",
        "if target in self.open:",
        ("core/test_stack_ways.py::test_a_leader_whose_line_is_cut_is_gone_around_though_its_connection_stands",),
    ),
    Mutation(
        "hellos-over-others",
        "What speaks about a connection travels on it.",
        "hop = packet.target if packet.channel in ONE_HOP else self.next_hop(packet.target)",
        "hop = self.next_hop(packet.target)",
        ("core/test_stack_ways.py::test_a_leader_whose_line_is_cut_is_gone_around_though_its_connection_stands",),
    ),
    Mutation(
        "relay-chosen-for-a-ping",
        "A relay is chosen for what it will carry: models take the wide way.",
        "self._context.m.routes.best(cluster, size)",
        "self._context.m.routes.best(cluster, 0)",
        ("core/test_stack_ways.py::test_models_for_who_cannot_be_dialed_go_over_the_widest_relay",),
    ),
    Mutation(
        "hops-of-the-wire",
        "A packet ends after MAX_HOPS, whatever stands on it: two may take each other for the leader.",
        "hops = min(packet.hops, MAX_HOPS)",
        "hops = packet.hops",
        (
            "core/test_stack_ways.py"
            "::test_two_who_take_each_other_for_the_leader_do_not_pass_a_packet_to_and_fro_for_long",
        ),
    ),
)
