"""The rules of `ictp2p/training/last_round.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "leaver-waits-for-a-lost-quorum",
        "Who was asked to leave after its next round waits for a lost quorum no longer than for a stall.",
        "        if now - self._vain_since >= patience:",
        "        if False:",
        ("training/test_last_round.py::test_a_quorum_is_waited_for_as_long_as_anybody_who_makes_no_progress",),
    ),
    Mutation(
        "leaver-counts-former-lacks",
        "A quorum that came back is waited for anew.",
        "            self._vain_since = None\n            return",
        "            return",
        ("training/test_last_round.py::test_with_a_quorum_in_sight_the_round_is_waited_for",),
    ),
    Mutation(
        "leaver-waits-for-a-state",
        "Who was asked to leave before it had a state does not wait for one.",
        "if comes and trains:",
        "if comes:",
        ("training/test_last_round.py::test_who_has_no_state_yet_trained_nothing_that_a_round_could_take",),
    ),
)
