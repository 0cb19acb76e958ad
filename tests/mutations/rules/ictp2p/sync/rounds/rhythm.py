"""The rules of `ictp2p/sync/rounds/rhythm.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "waits-taken-for-phases",
        "What was waited in vain is no part of a phase.",
        "        known = [*self._phases.values()] or self._gaps()",
        "        known = self._gaps()",
        ("sync/rounds/test_rhythm.py::test_nobody_comes_to_wait_for_clusters_of_half_the_speed",),
    ),
    Mutation(
        "phases-from-the-last-commit",
        "A cluster's phase began with its own last round, whatever others have committed since.",
        "(at for at, clusters in reversed(kind) if name in clusters)",
        "(at for at, _ in reversed(kind))",
        ("sync/rounds/test_rhythm.py::test_a_cluster_is_due_a_usual_gap_after_its_own_last_round",),
    ),
)
