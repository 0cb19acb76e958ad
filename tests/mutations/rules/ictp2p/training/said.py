"""The rules of `ictp2p/training/said.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "ended-training-waited-for",
        "Rounds do not wait for a cluster whose training has ended.",
        "        self.trains(False)\n",
        "",
        ("test_peer.py::test_rounds_do_not_wait_for_a_cluster_that_has_ended_its_training",),
    ),
    Mutation(
        "wishes-said-once-for-good",
        "Who wants into its cluster's group after it has left says so again.",
        "        self._wanted = None\n        self.trains",
        "        self.trains",
        ("training/test_said.py::test_the_peer_is_told_what_it_does_not_know_and_nothing_twice",),
    ),
)
