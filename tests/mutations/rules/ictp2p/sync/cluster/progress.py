"""The rules of `ictp2p/sync/cluster/progress.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "schedule-of-a-worker-alone",
        "All workers of a cluster follow a schedule from the same place, also one that came later.",
        "list(other.behind), other.scheduled",
        "list(other.behind), self.scheduled",
        (
            "sync/test_pace.py::"
            "test_a_schedule_stays_where_a_round_comes_to_nothing_and_a_newcomer_is_where_the_others_are",
        ),
    ),
)
