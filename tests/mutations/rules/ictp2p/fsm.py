"""The rules of `ictp2p/fsm.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "unknown-trigger-ignored",
        "A trigger that the state does not answer is an error, not silence.",
        "        if step is None:\n            known",
        "        if step is None:\n            return self.state\n        if step is None:\n            known",
        ("test_fsm.py::test_a_final_state_says_that_it_is_final",),
    ),
    Mutation(
        "moved-over-a-handler",
        "Where a signal's handler has moved a life to is where it goes on from.",
        "            if self.state is source:",
        "            if source:",
        ("runtime/test_life.py::test_a_signals_handler_may_drain_or_close_wherever_it_comes_into_a_step",),
    ),
    Mutation(
        "ambiguous-table",
        "A state answers a trigger in one way.",
        "if (row.source, row.trigger) in seen:",
        "if (row.source, row.trigger, row.target) in seen:",
        ("test_fsm.py::test_a_trigger_answered_twice_is_refused",),
    ),
)
