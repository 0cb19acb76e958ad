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
    Mutation(
        "steps-of-two-threads-in-one-round",
        "Steps follow one another: while one thread is at one another thread is refused, by name.",
        "        if not self._lock.acquire(blocking=False):\n",
        "        if not self._lock.acquire():\n",
        (
            "sync/two_level/test_hooks.py::test_a_step_of_another_thread_meanwhile_is_refused_and_both_threads_are_named",
        ),
    ),
    Mutation(
        "closures-of-two-threads-in-one-round",
        "Nor may another thread average meanwhile what its closure has computed.",
        "        self._before = before_alone\n",
        "        self._before = before\n",
        (
            "sync/two_level/test_hooks.py::test_a_step_of_another_thread_meanwhile_is_refused_and_both_threads_are_named[before-True]",
        ),
    ),
)
