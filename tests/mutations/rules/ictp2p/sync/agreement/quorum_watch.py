"""The rules of `ictp2p/sync/agreement/quorum_watch.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "own-lateness-is-a-lost-quorum",
        "Of the time for which a process stood still hardly any counts against the voters: it asked and heard nobody.",
        "self._news_at += max(0.0, late)",
        "self._news_at += min(0.0, late)",
        ("sim/test_slow_disks.py::test_a_coordinator_whose_disk_took_long_does_not_say_that_the_quorum_is_lost",),
    ),
    Mutation(
        "late-looks-never-count",
        "Who is late for each look tells of a lost quorum all the same, and whoever waits for its word hears it.",
        "late = now - self._looked_at - self._deadline / _LOOKS",
        "late = now - self._looked_at if now - self._looked_at > self._deadline / _LOOKS else 0.0",
        ("sync/agreement/test_quorum_watch.py::test_who_is_late_for_each_look_tells_of_it_all_the_same",),
    ),
)
