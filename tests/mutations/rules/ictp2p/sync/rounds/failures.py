"""The rules of `ictp2p/sync/rounds/failures.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "coordinator-never-odd",
        "Whose digest is not that of most sits out the round, and nobody else: also where it is the coordinator's own.",
        "        self.barred |= odd\n",
        "        self.barred |= odd - {self._sight.mine}\n",
        (
            "sync/rounds/test_failures.py::test_whose_digest_is_not_that_of_most_sits_out_at_once_be_it_ones_own_cluster",
            "sync/rounds/test_odd_digests.py::test_the_odd_one_is_out_of_the_second_attempt_and_told_after_three_rounds",
        ),
    ),
)
