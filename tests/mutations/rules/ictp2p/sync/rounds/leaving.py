"""The rules of `ictp2p/sync/rounds/leaving.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "kept-by-the-gone",
        "Who has no vote waits for nobody's leave once all who have one are gone.",
        "self._released = deserted or self._is_excused(voters, now)",
        "self._released = self._is_excused(voters, now)",
        (
            "sync/rounds/test_leaving.py::test_who_has_no_vote_may_go_when_all_who_have_are_gone_and_not_when_they_are_suspected",
        ),
    ),
    Mutation(
        "gone-for-who-voted-too",
        "The death of all who vote now releases only who never voted: they may come back, and need its vote.",
        "deserted = self._voted_until < 0 and all(",
        "deserted = all(",
        ("sync/rounds/test_leaving.py::test_who_voted_waits_for_those_who_are_thought_dead",),
    ),
    Mutation(
        "leaves-with-what-few-know",
        "Who voted stays until a quorum of those who vote now knows it: others may need its vote to find out.",
        "(self._voted_until < 0 or quorum(voters, known))",
        "voters",
        ("sync/rounds/test_leaving.py::test_who_voted_stays_until_the_others_could_lose_one_more",),
    ),
    Mutation(
        "leaves-with-what-is-forgotten",
        "Nobody relies on a decision that a voter has learnt and not saved.",
        "return [*self._agreement.saved(), Send(leaver, Excused(tip[0]))]",
        "return [Send(leaver, Excused(tip[0]))]",
        (
            "sync/rounds/test_leaving.py::test_who_voted_goes_only_when_the_others_can_go_on_without_it_whatever_they_forget",
        ),
    ),
    Mutation(
        "excused-once-and-for-ever",
        "That a peer did not vote once says nothing about it after it voted again.",
        "if slot > self._voted_until}",
        "if slot >= 0}",
        ("sync/rounds/test_leaving.py::test_an_excuse_from_before_it_voted_again_does_not_count",),
    ),
    Mutation(
        "leaves-on-old-news",
        "A leaver goes once the coordinator knows: else it may be made a voter at the moment at which it goes.",
        "self._released = deserted or self._is_excused(voters, now)",
        "self._released = True",
        ("sync/rounds/test_leaving.py::test_a_leaver_that_was_away_is_let_go_only_once_nobody_will_count_on_it_again",),
    ),
    Mutation(
        "unheard-by-the-next",
        "A leaver goes once every voter that lives knows: the next coordinator would make it a voter again.",
        "return told and not unaware and (",
        "return told and (",
        ("sync/rounds/test_leaving.py::test_a_leaver_is_let_go_once_whoever_may_coordinate_next_has_heard_it",),
    ),
    Mutation(
        "last-though-others-stay",
        "The last voter goes only once everybody else has been let go.",
        "self._released = voters == (self._me,) and self._is_last()",
        "self._released = voters == (self._me,)",
        ("sync/rounds/test_leaving.py::test_the_only_voter_stays_until_another_votes",),
    ),
    Mutation(
        "last-though-a-voter-may-be-back",
        "The last voter counts on nobody's death: whoever voted beside it may only have been cut off.",
        "(companions | self._sight.everybody()) - {self._me}",
        "{*self._sight.workers()} - {self._me}",
        ("sync/rounds/test_leaving.py::test_the_last_voter_waits_for_those_who_are_thought_dead",),
    ),
    Mutation(
        "former-vote-forgotten",
        "Who leaves, and has voted in a former life, is let go only once its vote is not needed.",
        "        self._voted_until = max(-1, agreement.slot - 1)\n",
        "        self._voted_until = -1\n",
        (
            "sync/rounds/test_leaving.py::test_a_leaver_that_decided_alone_stays_for_who_needs_its_vote_whatever_became_of_it",
        ),
    ),
)
