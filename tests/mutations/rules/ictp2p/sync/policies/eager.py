"""The rules of `ictp2p/sync/policies/eager.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "eager-shares-alike",
        "A cluster's own part of an eager estimate is its share of the weight.",
        "return ours / (ours + others) if ours else 0.0",
        "return 0.5 if others else 1.0",
        ("sync/policies/test_eager.py::test_a_clusters_own_part_of_an_estimate_is_its_share_of_the_weight",),
    ),
    Mutation(
        "eager-brings-what-was-forgotten",
        "What is to be forgotten is not brought to a later round, though it was captured for one.",
        "        self._unlanded = False\n        self._go_on(self.state.committed, self._tensors)\n",
        "        self._go_on(self.state.committed, self._tensors)\n",
        (
            "sync/policies/test_eager.py::test_what_was_dropped_is_in_no_later_capture",
            "sync/two_level/test_late.py::test_what_an_eager_cluster_forgets_comes_with_no_later_round",
        ),
    ),
    Mutation(
        "statistics-from-an-estimate",
        "Running statistics are the means of the clusters' own, not steps from an estimate that they have forgotten.",
        "(self._start if n in self.trained else self.state.committed)[n]",
        "self._start[n]",
        ("sync/policies/test_eager.py::test_the_agreed_running_statistics_are_the_means_of_the_clusters_own",),
    ),
    Mutation(
        "eager-brings-what-diverged",
        "A cluster whose training has diverged brings nothing, in every policy.",
        "        check_finite(moved)",
        "        _ = self._unlanded",
        ("sync/policies/test_eager.py::test_what_has_diverged_is_not_brought",),
    ),
    Mutation(
        "eager-adds-what-diverged",
        "A capture that is refused leaves what a failed round had brought as it was: it is brought again.",
        "moved = self._views(self.average)",
        "moved = self._views(self.delta)",
        ("sync/policies/test_eager.py::test_what_a_failed_round_brought_outlives_a_capture_that_was_refused",),
    ),
    Mutation(
        "estimated-by-an-attempt-that-came-to-nothing",
        "All workers of a cluster estimate by the round that they saw last.",
        "self._unlanded, self._contributions = True, self._seen",
        "self._unlanded, self._contributions = True, max(1, len(self._parts))",
        ("sync/policies/test_eager.py::test_all_workers_of_a_cluster_estimate_by_the_round_that_they_saw_last",),
    ),
)
