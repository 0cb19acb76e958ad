"""The rules of `sim/threads.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "stale-timer-ends-a-later-wait",
        "What would have ended an earlier wait of a simulated thread is void once that wait has ended.",
        "if self._asleep and self._sleep == sleep and self._alive:",
        "if self._asleep and self._alive:",
        ("sim/test_training.py::test_what_threads_wait_with_waits_in_virtual_time",),
    ),
)
