"""The rules of `ictp2p/sync/rounds/failures.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "same-deadline-for-ever",
        "After an attempt that took too long the next one has longer.",
        "return 2.0 ** min(self._late, _DOUBLINGS)",
        "return 1.0",
        (
            "sync/rounds/test_failures.py::test_after_attempts_that_took_too_long_though_nobody_failed_the_next_may_take_longer",
        ),
    ),
    Mutation(
        "accuser-of-the-coordinator-stays",
        "Who alone accuses the coordinator's cluster, again and again, sits the round out itself.",
        "count, worst = against if against[0] or of_all else by",
        "count, worst = against",
        ("sync/rounds/test_failures.py::test_who_alone_accuses_the_coordinator_sits_out_itself",),
    ),
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
