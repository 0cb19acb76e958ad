"""The rules of `ictp2p/runtime/custody.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "custody-of-who-leaves",
        "Who is about to leave keeps no state for another one that does.",
        "        if self.leaving:\n",
        "        if False:\n",
        (
            "runtime/test_custody.py::test_who_leaves_keeps_nothing",
            "sim/test_handover.py::test_holders_that_leave_at_one_moment_do_not_rely_on_each_other",
        ),
    ),
    Mutation(
        "sealed-fetched-for-others",
        "Whoever holds a version that has not landed yet need not fetch it to keep it.",
        "            return bool(await self.manifest(wish.digest))",
        "            return False",
        ("runtime/test_custody.py::test_what_is_here_already_is_not_fetched",),
    ),
    Mutation(
        "kept-beside-what-the-worker-has",
        "What the worker came for while it arrived is not kept besides.",
        "        if not await self._has(wish):  # as it may by now\n",
        "        if True:\n",
        ("runtime/test_custody.py::test_a_worker_that_comes_for_it_while_it_arrives_makes_it_needless",),
    ),
    Mutation(
        "kept-for-ever",
        "What is kept is dropped once the worker holds it, or a newer one.",
        "            self.reached(own[0])",
        "            pass",
        ("runtime/test_custody.py::test_a_worker_that_came_as_far_by_other_ways_needs_nothing_kept",),
    ),
    Mutation(
        "kept-and-not-said",
        "Who keeps a state says that it holds it: else the mesh would go back.",
        "        return own if self._kept is None else self._kept.held()",
        "        return own",
        ("runtime/test_custody.py::test_what_is_kept_is_provided_beside_what_the_worker_holds",),
    ),
    Mutation(
        "another-state-handed-on",
        "A worker finds the state here that it wants, and no other one.",
        "        kept = self._kept_as(ref.digest)\n        if kept is None:\n            return False\n",
        "        kept = self._kept\n        if kept is None:\n            return False\n",
        ("runtime/test_custody.py::test_the_worker_finds_it_here_and_nothing_is_kept_any_more",),
    ),
)
