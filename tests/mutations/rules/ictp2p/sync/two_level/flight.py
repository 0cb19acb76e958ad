"""The rules of `ictp2p/sync/two_level/flight.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "missed-round-in-a-cycle",
        "A round in the background that failed is forgotten with its error.",
        "        result, self._result = self._result, None\n",
        "        result = self._result\n",
        ("sync/two_level/test_flight.py::test_nor_does_one_that_came_to_nothing",),
    ),
    Mutation(
        "withdrawn-round-in-a-cycle",
        "A round in the background that was withdrawn is forgotten with its error.",
        "        self._thread.join()\n        self._result = None\n",
        "        self._thread.join()\n",
        ("sync/two_level/test_flight.py::test_nor_does_one_that_came_to_nothing",),
    ),
    Mutation(
        "given-up-while-it-begins",
        "Whether a round has begun is asked where that is known, when it is given up.",
        "(self._needless and not self._begun)",
        "self._needless",
        ("sync/two_level/test_flight.py::test_a_round_that_has_begun_is_not_given_up",),
    ),
)
