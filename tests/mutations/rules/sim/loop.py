"""The rules of `sim/loop.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "held-up-for-the-shortest",
        "A process that is held up twice goes on after both.",
        "        if process.until > self.now:\n            return\n",
        "",
        ("sim/test_loop.py::test_what_a_process_does_behind_what_holds_it_up_comes_after",),
    ),
    Mutation(
        "a-timer-may-be-early",
        "A timer of a simulated process runs when its clock shows that time, never before.",
        "if due > self.now or when > process.local(self.now):",
        "if due > self.now:",
        ("sim/test_loop.py::test_a_timer_is_never_early_by_a_rounding_error",),
    ),
)
