"""The rules of `ictp2p/sync/cluster/heal.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "received-under-a-flight",
        "What a deposed leader has under way ends before its heir's state is received where it writes.",
        "            withdraw()\n",
        "            pass\n",
        ("sync/cluster/test_heal.py::test_what_is_under_way_on_a_state_has_ended_before_another_one_is_received",),
    ),
    Mutation(
        "whoever-is-first-has-the-schedule",
        "Of workers that are equally far it is one whose schedule is where it should be that all become like.",
        "self.progress.order, not turn.off, _NOTHING if self.brought is None else self.brought",
        "self.progress.order, True, _NOTHING if self.brought is None else self.brought",
        ("sync/two_level/test_schedules.py::test_who_is_healed_by_a_worker_in_a_round_is_no_step_behind",),
    ),
    Mutation(
        "heal-from-the-leader",
        "All become like the worker that is furthest, so that no step that anybody completed is lost.",
        "source = max(range(group.size), key=lambda rank: (*held[rank].order(turns[rank]), -rank))",
        "source = 0",
        ("sync/cluster/test_heal.py::test_all_become_like_the_one_that_is_furthest",),
    ),
    Mutation(
        "heal-from-the-older-checkpoint",
        "Of workers that no version has reached yet, the one that brought the newest along is furthest.",
        "not turn.off, _NOTHING if self.brought is None else self.brought",
        "not turn.off, 0",
        ("sync/cluster/test_heal.py::test_of_what_was_brought_along_the_newest_is_everybodys",),
    ),
    Mutation(
        "heal-in-place",
        "A worker is as it was or entirely healed: the source may die in the middle of the copy.",
        "received = tensors if sending else allocate(skeleton, 2**62)",
        "received = tensors",
        ("sync/cluster/test_heal.py::test_a_source_that_dies_leaves_the_others_whole",),
    ),
    Mutation(
        "given-back-while-it-is-written-to",
        "What a source computes while it heals others stays in its memory.",
        "            if not sends:  # the source's next state may be under way\n                state.release()\n",
        "            state.release()\n",
        ("sync/cluster/test_heal.py::test_what_a_source_is_computing_is_not_given_back",),
    ),
)
