"""The rules of `ictp2p/torch_backend/calls.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "failed-before-it-began-in-silence",
        "Who begins a collective that has failed at another rank before it began there is told.",
        "                failed(error)\n",
        "                pass\n",
        (
            "torch_backend/test_group_ends.py::test_who_comes_when_the_others_have_given_up_what_was_queued_hears_of_it",
            "torch_backend/test_group_ends.py::test_who_comes_to_what_has_failed_before_it_began_hears_of_it",
        ),
    ),
    Mutation(
        "collectives-without-turns",
        "A rank begins no more collectives ahead of the others than they remember.",
        "        if patience is None:\n",
        "        if True:\n",
        ("torch_backend/test_calls.py::test_collectives_run_in_order_and_only_so_many_at_a_time",),
    ),
    Mutation(
        "lock-of-a-thread-left-behind",
        "A forked process waits for no lock that a thread held which was not forked along.",
        "        if self._loop.left_behind:  # before the lock, as above\n",
        "        if False:\n",
        ("torch_backend/test_fork.py",),
    ),
    Mutation(
        "threads-unsaid",
        "Where ranks call different things, who calls from several threads is told so, and nobody else.",
        "self._several or before not in (0, self._caller)",
        "self._several and before not in (0, self._caller)",
        ("torch_backend/test_differing.py::test_who_calls_from_several_threads_is_told_of_that_too",),
    ),
)
