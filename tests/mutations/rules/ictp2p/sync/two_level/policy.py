"""The rules of `ictp2p/sync/two_level/policy.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "ends-between-rounds-untold",
        "Who ends between two rounds is told of the steps that are in none.",
        "        if self._inside and kind is None:\n",
        "        if False:\n",
        ("sync/two_level/test_unfinished.py::test_a_loop_that_ends_between_two_rounds_says_what_is_in_none",),
    ),
    Mutation(
        "who-drained-is-told-of-its-end",
        "Who was asked to leave has nothing to be told of when it ends.",
        " and not self._peer.leaves:",
        ":",
        ("sync/two_level/test_unfinished.py::test_who_was_asked_to_leave_or_broke_off_or_looks_on_has_nothing_to_say",),
    ),
    Mutation(
        "entered-and-told-otherwise",
        "Of a policy that was entered nobody is told that it was not.",
        "        self._unentered.remove()\n",
        "",
        ("sync/two_level/test_unfinished.py::test_a_policy_that_is_entered_was_not_forgotten",),
    ),
    Mutation(
        "refused-without-a-word",
        "A rank that is refused with its file tells its siblings, who wait for it.",
        "            self._loop.stop()  # they are about to compare, and would wait for this one\n",
        "",
        ("sync/two_level/test_shards.py::test_who_is_refused_with_its_file_has_its_siblings_told",),
    ),
    Mutation(
        "left-in-the-mesh",
        "A policy that cannot begin leaves the mesh again.",
        "            self._leave()\n            raise\n",
        "            raise\n",
        ("sync/two_level/test_policy.py::test_who_cannot_begin_leaves_nothing_behind",),
    ),
    Mutation(
        "left-twice",
        "A policy that is left again does not take the place away of the one that trains by then.",
        "        if self._inside:\n",
        "        if True:\n",
        ("sync/two_level/test_policy.py::test_a_policy_that_is_left_again_takes_no_place_of_the_next_one",),
    ),
    Mutation(
        "trained-behind-its-back",
        "People are told where another optimizer steps what a policy keeps in step.",
        "follow(Strangers(self._inner, lambda: self.progress.step, self._warn, self._outer))",
        "follow()",
        ("sync/model/test_strangers.py::test_an_optimizer_made_anew_is_told_of_once",),
    ),
)
