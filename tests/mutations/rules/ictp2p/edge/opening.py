"""The rules of `ictp2p/edge/opening.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "control-in-large-packets",
        "Control connections have packets that fit everywhere.",
        "mine.kind is Kind.CONTROL",
        "False",
        ("sim/test_swallowed.py::test_where_large_packets_are_lost_from_the_start_no_call_waits_for_them",),
    ),
    Mutation(
        "wrong-answer-in-a-cycle",
        "An answer that is none leaves no cycle of its error and what heard it.",
        "            opening = None  # what",
        "            pass  # what",
        ("edge/test_opening.py::test_an_answer_that_is_none_leaves_nothing_to_the_garbage_collector",),
    ),
)
