"""The rules of `ictp2p/sync/two_level/hooks.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "policy-held-by-its-hooks",
        "A policy that has ended, which is several times as large as its model, goes with whoever held it.",
        "        self._set, self._before = [], lambda: None\n",
        "        self._set = []\n",
        ("sync/two_level/test_policy.py::test_a_policy_that_has_ended_goes_with_whoever_held_it",),
    ),
)
