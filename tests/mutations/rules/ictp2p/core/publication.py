"""The rules of `ictp2p/core/publication.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "too-long-to-be-there",
        "A cluster of more workers than fit into its record is in the mesh, by those who fit.",
        "listed = fitted(card, MAX_PAYLOAD)",
        "listed = card",
        ("core/test_stack_deaths.py::test_a_cluster_whose_card_is_too_long_stays_in_the_mesh_and_says_so",),
    ),
    Mutation(
        "takes-part-once-its-leader-has-begun",
        "A cluster whose workers call takes part, though its leader has just started and done nothing yet.",
        "training=self.training or context.m.rosters.mates_call,",
        "training=self.training,",
        ("core/test_stack_deaths.py::test_a_cluster_whose_leader_has_not_begun_takes_part_where_its_workers_call",),
    ),
)
