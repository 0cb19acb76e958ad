"""The rules of `ictp2p/bulk/turns.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "all-probe-at-once",
        "Whoever is probed lets one after the other.",
        "if self._probing is None and self._waiting:",
        "if self._waiting:",
        (
            "bulk/test_turns.py::test_one_has_the_turn_and_the_next_gets_it_when_it_ends",
            "bulk/test_probing.py::test_who_is_probed_by_two_at_once_lets_one_after_the_other",
        ),
    ),
    Mutation(
        "a-turn-for-ever",
        "A turn is over after some seconds, whatever has become of who has it.",
        "call_later(self._seconds, self._free)",
        "call_later(1e9, self._free)",
        ("bulk/test_turns.py::test_one_has_the_turn_and_the_next_gets_it_when_it_ends",),
    ),
)
