"""The rules of `ictp2p/bulk/throttle.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "raised-pace-waits-for-the-old-timer",
        "A pace that is raised holds from now on.",
        "            self._timer.cancel()\n            self._timer = None\n        self.bucket",
        "            pass\n        self.bucket",
        ("bulk/test_throttle.py::test_a_pace_that_is_raised_waits_for_no_timer_of_the_one_before",),
    ),
    Mutation(
        "what-holds-a-connection-back-knows-it",
        "What held back a connection that has ended does not know it.",
        "        self._timer = self._sender = None  # in",
        "        self._timer = None  # in",
        ("bulk/test_connection.py::test_one_that_has_ended_leaves_nothing_to_the_garbage_collector",),
    ),
)
