"""The rules of `sim/world.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "blind-while-waiting",
        "What no notice announces is looked at while something is waited for.",
        "            due = ahead >= swept + SWEEP",
        "            due = self.now >= swept + SWEEP and ahead < swept",
        ("sim/test_world.py::test_what_no_notice_announces_is_looked_at_while_something_is_waited_for",),
    ),
    Mutation(
        "dropped-and-not-closed",
        "A world that was dropped is closed: what runs in it awaits something on its way out.",
        "        with apart():\n            self.close()",
        "        pass",
        ("sim/test_world.py::test_a_world_that_is_dropped_unclosed_ends_without_a_word",),
    ),
)
