"""The rules of `ictp2p/concurrency/interrupts.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "no-longer-than-the-platform-counts",
        "A wait may be as long as anybody likes.",
        "min(max(0.0, timeout), threading.TIMEOUT_MAX)",
        "max(0.0, timeout)",
        ("concurrency/test_interrupts.py::test_a_wait_may_be_longer_than_the_platform_counts",),
    ),
    Mutation(
        "locked-by-an-interrupt",
        "Who was interrupted while it waited holds up nobody who has its answer.",
        "        self._condition = Condition()\n",
        "        self._condition = threading.Condition()\n",
        (
            "concurrency/test_interrupts.py::test_who_was_interrupted_while_it_waited_for_an_answer_holds_up_nobody_who_answers",
        ),
    ),
)
