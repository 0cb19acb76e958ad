"""The rules of `sim/group.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "the-dead-clean-up",
        "A simulated process that was killed does nothing any more: its mates learn of the death as they really would.",
        "if self._crew.dead:",
        "if False:",
        ("sim/test_training.py::test_a_cluster_survives_the_death_of_its_leader",),
    ),
)
