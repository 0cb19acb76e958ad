"""The rules of `ictp2p/sync/rounds/electorate.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "first-goes-first",
        "Where everybody leaves, whoever coordinates goes last: the others would wait for its word in vain.",
        "            return (self._me,)  # only if nobody stays",
        "            return chosen  # only if nobody stays",
        ("sync/rounds/test_leaving.py::test_all_may_go_at_once",),
    ),
    Mutation(
        "vote-left-to-the-dead",
        "A vote is left only to those of whom a quorum has answered that it is there.",
        "        return () if quorum(heirs, heard) else",
        "        return () if True else",
        ("sync/rounds/test_leaving.py::test_no_vote_is_left_to_those_who_have_died_without_anybodys_notice",),
    ),
    Mutation(
        "others-leave-votes-to-the-dead",
        "Whoever decides leaves nobody's vote to those who have died unnoticed, its own or another leaver's.",
        "        if not self._dropping:\n",
        "        if not self.leaves:\n",
        ("sync/rounds/test_leaving.py::test_nobody_goes_as_long_as_those_who_stay_are_no_quorum_of_the_living",),
    ),
    Mutation(
        "goodbye-taken-for-a-release",
        "Who said goodbye before it was let go has its vote until those who stay are a quorum without it.",
        " if voter not in chosen}",
        " if voter not in chosen and not self._sight.left(voter)}",
        ("sim/test_last_voter.py::test_who_leaves_after_deaths_that_nobody_has_noticed_can_come_back",),
    ),
    Mutation(
        "dropped-for-the-dead",
        "Who is thought dead stays a voter until those who vote without it are a quorum that has answered.",
        " if voter not in chosen}",
        " if voter not in chosen and (voter in self.leaving or self._sight.left(voter))}",
        ("sim/test_last_voter.py::test_who_was_away_does_not_come_back_to_be_replaced_by_the_dead",),
    ),
)
