"""The rules of `ictp2p/sync/rosters/worker.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "sick-one-in-every-group",
        "A worker that cannot build its part of a group stands aside, and the others train on.",
        "            self.presence.step_aside(now)\n",
        "            self.presence.times += 1\n",
        ("sync/rosters/test_absences.py::test_one_that_cannot_build_its_part_costs_the_others_ever_less",),
    ),
    Mutation(
        "ended-office-waits",
        "A leader whose training has ended does not wait for it to come up.",
        "return self._spell > 0",
        "return self._spell > 1",
        ("sim/test_training.py::test_a_leader_whose_training_ends_hands_its_cluster_over_to_a_worker_that_goes_on",),
    ),
)
