"""The rules of `ictp2p/work.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "queue-goes-on",
        "Of calls that are queued none is begun after one that failed, until its caller has heard of that.",
        "                self._unheard.check(",
        "                bool(",
        ("calls/test_engine.py::test_calls_run_in_order_and_none_after_one_that_failed_before_that_was_heard_of",),
    ),
    Mutation(
        "asked-for-in-ignorance",
        "What was queued before its caller heard of a failure is not begun once it has.",
        "self._failed, self._void = 0, self._asked",
        "self._failed = 0",
        (
            "calls/test_engine.py::test_who_has_heard_of_a_failure_may_ask_for_more_and_what_was_asked_for_before_stays_void",
        ),
    ),
    Mutation(
        "answered-before-it-is-over",
        "Who has the answer of the last call may begin a policy at once.",
        "with contextlib.suppress(InvalidStateError):  # it was cancelled\n            tell(answer)",
        "self._unfinished += 1\n        with contextlib.suppress(InvalidStateError):\n            tell(answer)\n"
        "        self._unfinished -= 1",
        ("calls/test_engine.py::test_whoever_has_its_answer_finds_the_queue_idle",),
    ),
)
