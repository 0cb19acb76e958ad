"""The rules of `ictp2p/training/mesh.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "calls-impatient",
        "Calls say that they wait longer for workers of the last group.",
        "        self._wants(ready, calls=True)",
        "        self._wants(ready)",
        ("training/test_mesh.py::test_calls_wait_longer_for_workers_of_the_last_group_than_a_policy",),
    ),
    Mutation(
        "second-policy-holds-nothing",
        "What a process holds of the agreed state stays to be had until whatever comes after it holds as much.",
        "            state.succeed(self.global_state)\n",
        "            pass\n",
        ("training/test_mesh.py::test_what_this_process_held_before_is_taken_over_from_there",),
    ),
    Mutation(
        "fetch-goes-on-in-the-state",
        "A fetch that was given up writes nothing more to the state, and commits nothing of it.",
        "            lent.take_back()\n",
        "            pass\n",
        ("training/test_mesh.py::test_a_fetch_that_was_given_up_does_nothing_more_to_the_state",),
    ),
    Mutation(
        "newcomer-cannot-leave",
        "A worker that was asked to leave looks whether it may wait also while it is in no group.",
        "            if self._policy_in:  # else a call waits",
        "            if False:  # else a call waits",
        ("sim/test_last_round.py::test_it_leaves_after_the_stall_whether_it_leads_or_follows_or_was_never_let_in",),
    ),
)
