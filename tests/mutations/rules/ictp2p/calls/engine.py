"""The rules of `ictp2p/calls/engine.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-deadline-for-each-round",
        "A call of two rounds ends within the patience of one call.",
        "body(self._runner.together())",
        "body(self._runner.run)",
        ("sim/test_call_newcomers.py::test_both_rounds_of_a_call_have_one_deadline",),
    ),
    Mutation(
        "calls-behind-the-end",
        "A peer that was closed begins no call: nobody would end the thread that it waits in.",
        "            if self._closed:\n",
        "            if self._closed and self._queue is not None:\n",
        ("calls/test_engine.py::test_an_engine_that_was_closed_before_its_first_call_begins_none",),
    ),
    Mutation(
        "served-by-whoever-was-last",
        "The state that calls agree on is the one that newcomers are served, whatever a policy has served in between.",
        "if self.mesh.global_state is not shared.mirror:",
        "if self._shared is not shared:",
        ("calls/test_engine.py::test_the_state_that_is_synchronised_is_the_one_that_is_served",),
    ),
)
