"""The rules of `ictp2p/sync/rosters/presence.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "left-out-for-ever",
        "A worker whose training thread moves again is let into the group again.",
        '        self._still, self.yields = False, stage == "yields"\n',
        '        self.yields = stage == "yields"\n',
        ("sync/rosters/test_absences.py::TestWorker::test_one_that_stands_still_wants_in_again_when_it_says_anything",),
    ),
    Mutation(
        "stands-still-while-it-waits",
        "A worker whose thread stands still while it waits for a roster is left out as any other.",
        "        return self._tried\n",
        "        return (2**30, 0)\n",
        ("sync/rosters/test_absences.py::test_those_who_move_train_together_whoever_stands_still",),
    ),
    Mutation(
        "yields-and-is-counted-on",
        "Who leaves the group to its mates is in none of theirs.",
        "return not (self._still or self.yields) and",
        "return not self._still and",
        (
            "sync/rosters/test_office_heirs.py::"
            "test_a_leader_that_yields_to_the_others_of_its_group_makes_way_at_once_and_comes_back_as_any_other",
        ),
    ),
)
