"""The rules of `ictp2p/calls/chronicle.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "newcomer-though-in-a-round",
        "Who gave its first call up in the middle of a round is in that round, and no newcomer for the next call.",
        "            if self._settled is None and rounds:\n",
        "            if False:\n",
        ("calls/test_chronicle.py::test_what_a_call_that_was_given_up_is_in_is_not_for_the_next_one",),
    ),
    Mutation(
        "newcomer-brings-it-again",
        "Nor does a newcomer, which waits for another round after each that was committed without it.",
        "return self._settled is None and not self._gap and not self._ended",
        "return self._settled is None and not self._gap",
        ("calls/test_leading.py::test_a_newcomer_does_not_bring_again_what_was_committed_before_it_held_the_result",),
    ),
    Mutation(
        "newcomer-confused-by-rounds-of-others",
        "That rounds of others were committed first hides from no newcomer the one that it is in.",
        'return opened.spec.kind != "sync" and (self._settled is not None or self._takes_part(opened))',
        'return opened.spec.kind != "sync"',
        ("calls/test_leading.py::test_a_newcomer_does_not_bring_again_what_was_committed_before_it_held_the_result",),
    ),
    Mutation(
        "newcomer-confused-by-what-was-before-it",
        "The round at whose end a newcomer finds the mesh hides from it no later one that it is in.",
        "            if first and self._settled is None:\n",
        "            if False:\n",
        ("calls/test_chronicle.py::test_the_round_at_whose_end_a_newcomer_finds_the_mesh_hides_no_answer_from_it",),
    ),
    Mutation(
        "newcomer-sure-of-what-it-did-not-see",
        "Nor does it after rounds of which it did not see who was in them.",
        "return self._settled is None and not self._gap and not self._ended",
        "return self._settled is None and not self._ended",
        ("calls/test_leading.py::test_a_newcomer_does_not_stand_again_after_rounds_in_which_it_may_have_been",),
    ),
    Mutation(
        "sum-of-whoever-acts-now",
        "Whose tensors are in a round that nobody saw the end of is said of who was told that it begins with them.",
        "return self._told[:2] == (unseen.opened.attempt, unseen.opened.participants)",
        "return self._told[1] == unseen.opened.participants",
        ("calls/test_chronicle.py::test_whose_tensors_are_in_a_round_is_known_to_who_was_told_of_that_attempt",),
    ),
    Mutation(
        "sum-of-the-call-before",
        "What a leader told of an attempt is of no round after it.",
        "                self._told = (0, (), ())  # it was",
        "                pass  # it was",
        ("calls/test_chronicle.py::test_whose_tensors_are_in_a_round_is_known_to_who_was_told_of_that_attempt",),
    ),
    Mutation(
        "policies-rounds-missed-by-calls",
        "Rounds of a policy whose decisions were skipped are no calls that were missed.",
        "calls = skipped > 0 and not self._made_versions(skipped, value)",
        "calls = skipped > 0",
        ("calls/test_chronicle.py::test_decisions_that_were_skipped_in_a_training_are_of_no_call",),
    ),
    Mutation(
        "nothing-shown",
        "A leader that has started since has the answer of a round by what a mate has seen of it.",
        "            if shown is not None:\n",
        "            if False:\n",
        (
            "calls/test_chronicle.py::test_who_started_after_a_round_may_have_its_answer_by_what_a_mate_shows",
            "calls/test_runner.py::test_a_leader_that_was_started_again_has_the_answer_for_its_mates_by_what_they_saw",
        ),
    ),
    Mutation(
        "shown-and-heard-are-two",
        "A round that a mate has shown is no other one when it is heard of.",
        " and not self._was_shown(close):",
        ":",
        ("calls/test_chronicle.py::test_who_started_after_a_round_may_have_its_answer_by_what_a_mate_shows",),
    ),
    Mutation(
        "shown-past-what-was-missed",
        "What a mate shows hides no later round that is known to be missed.",
        "        if self._gap <= shown.close.round:\n            self._gap = 0\n",
        "        self._gap = 0\n        self._ended = [shown]\n",
        (
            "calls/test_chronicle.py::test_what_a_mate_shows_is_no_way_around_rounds_that_this_worker_knows_to_have_missed",
        ),
    ),
    Mutation(
        "tensors-of-a-former-life",
        "A sum with what a worker brought before it was started again is no answer to its call since.",
        "            if fresh and (seen",
        "            if False and (seen",
        (
            "calls/test_chronicle.py::test_who_was_in_a_round_in_a_former_life_is_not_in_it",
            "calls/test_runner.py::test_a_leader_that_was_started_again_has_the_answer_for_its_mates_by_what_they_saw",
        ),
    ),
)
