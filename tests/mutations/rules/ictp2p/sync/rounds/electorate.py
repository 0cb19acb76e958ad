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
        "        return () if quorum(self._chosen, heard) else",
        "        return () if True else",
        ("sync/rounds/test_leaving.py::test_no_vote_is_left_to_those_who_have_died_without_anybodys_notice",),
    ),
    Mutation(
        "others-leave-votes-to-the-dead",
        "Whoever decides leaves nobody's vote to those who have died unnoticed, its own or another leaver's.",
        "        if not dropped or (self.leaves and self._me in self._chosen):",
        "        if not dropped or not self.leaves or self._me in self._chosen:",
        ("sync/rounds/test_leaving.py::test_nobody_goes_as_long_as_those_who_stay_are_no_quorum_of_the_living",),
    ),
    Mutation(
        "goodbye-taken-for-a-release",
        "Who said goodbye before it was let go has its vote until those who stay are a quorum without it.",
        " for voter in tip.voters if voter in self._since]",
        " for voter in tip.voters if voter in self._since and not self._sight.left(voter)]",
        ("sim/test_last_voter.py::test_who_leaves_after_deaths_that_nobody_has_noticed_can_come_back",),
    ),
    Mutation(
        "dropped-for-the-dead",
        "Who is thought dead stays a voter until those who vote without it are a quorum that has answered.",
        " for voter in tip.voters if voter in self._since]",
        " for voter in tip.voters if voter in self._since and (voter in self.leaving or self._sight.left(voter))]",
        ("sim/test_last_voter.py::test_who_was_away_does_not_come_back_to_be_replaced_by_the_dead",),
    ),
    Mutation(
        "vote-given-to-the-dead",
        "Nobody votes for the first time who has not said that it is there.",
        "        return tuple(voter for voter in self._chosen if voter not in strangers)",
        "        return self._chosen",
        ("sync/rounds/test_electorate.py::test_who_does_not_answer_becomes_no_voter",),
    ),
    Mutation(
        "vote-for-an-old-answer",
        "What somebody said before it was to vote is no word that it is there.",
        "self._heard_since(self._since[peer]))",
        "self._heard_since(0.0))",
        ("sync/rounds/test_electorate.py::test_an_answer_of_before_it_was_to_vote_does_not_count",),
    ),
    Mutation(
        "vote-for-a-stale-answer",
        "What somebody said when a long round began is no word that it is there at its end.",
        "self._survey.heard_since(max(moment, self._fresh))",
        "self._survey.heard_since(moment)",
        ("sync/rounds/test_electorate.py::test_who_answered_at_the_beginning_of_a_long_round_may_be_dead_at_its_end",),
    ),
)
