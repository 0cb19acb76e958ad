"""The rules of `ictp2p/concurrency/interrupts.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "event-not-looked-at-again",
        "Who waits for an event looks once more when it can be told: it may have been set meanwhile.",
        "told = self._is_set or waiter.acquire(",
        "told = waiter.acquire(",
        ("concurrency/test_interrupts.py::test_what_is_set_while_its_waiter_gets_ready_is_not_missed",),
    ),
    Mutation(
        "event-tells-one",
        "All who wait for an event are told.",
        "            while True:\n                self._waiting.pop().release()\n",
        "            self._waiting.pop().release()\n",
        ("concurrency/test_interrupts.py::test_all_who_wait_for_an_event_are_told_whoever_sets_it",),
    ),
    Mutation(
        "event-keeps-who-gave-up",
        "Who gave up waiting for an event leaves nothing there.",
        "                    self._waiting.remove(waiter)\n",
        "                    pass\n",
        ("concurrency/test_interrupts.py::test_who_gave_up_waiting_for_an_event_leaves_nothing",),
    ),
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
