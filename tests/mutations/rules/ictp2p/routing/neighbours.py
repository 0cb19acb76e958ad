"""The rules of `ictp2p/routing/neighbours.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "gap-unnoticed",
        "An update that was dropped on the way shows as a gap, and everything is asked for again.",
        "            if number == self._number + 1:\n",
        "            if number >= 0:\n",
        ("routing/test_neighbours.py::test_who_goes_on_counting_is_trusted_longer_and_a_gap_is_asked_about_at_once",),
    ),
)
