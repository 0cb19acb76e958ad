"""The rules of `ictp2p/sync/rounds/participant.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "vote-taken-back",
        "The first verdict on an attempt stays: it may have been counted.",
        " != (round_, attempt) or self._verdict is not None:",
        " != (round_, attempt):",
        ("sync/rounds/test_participant.py::test_a_vote_that_was_given_is_not_taken_back",),
    ),
    Mutation(
        "odd-one-never-told",
        "Who sits out round after round for its digest gets an error, and does not stay in its step.",
        "if value.round == self._odd[0] and self._odd_rounds >= _MOST_ODD:",
        "if False:",
        ("sync/rounds/test_odd_digests.py::test_the_odd_one_is_out_of_the_second_attempt_and_told_after_three_rounds",),
    ),
    Mutation(
        "odd-now-and-then-is-odd",
        "Only rounds in a row that were decided without a cluster for its digest end its training.",
        "            self._odd_rounds = 0\n        elif",
        "            pass\n        elif",
        ("sync/rounds/test_odd_digests.py::test_a_result_that_is_odd_now_and_then_ends_nothing",),
    ),
    Mutation(
        "calls-absolve-the-odd-one",
        "A collective call that a cluster was in does not make a round of the state that it was in.",
        '        if isinstance(opened, Open) and opened.spec.kind != "sync":\n            return\n',
        "",
        ("sync/rounds/test_odd_digests.py::test_a_call_that_all_agree_on_is_no_round_of_the_state",),
    ),
    Mutation(
        "abort-applied",
        "Parameters change only after a decided COMMIT.",
        "            if not value.committed:\n                return [RoundAborted(bound, value)]\n",
        "",
        ("sync/rounds/test_round_waits.py::test_an_attempt_without_a_majority_ends_at_the_hard_deadline",),
    ),
    Mutation(
        "equal-bytes-are-one-base",
        "A contribution whose base was restored is brought anew: it may be in a version between the two.",
        "if c.base is not None and same(c.base, tip.state):",
        "if c.base is not None and c.base.digest == tip.state.digest:",
        ("sync/rounds/test_restore.py::test_a_contribution_does_not_stand_through_a_restore_of_its_own_base",),
    ),
    Mutation(
        "bound-in-another-term",
        "An attempt binds a leader in one term: elected anew, it does not serve the old one's round.",
        "if (c.cluster, c.term, c.spec) != (part.cluster, part.term, opened.spec):",
        "if (c.cluster, c.spec) != (part.cluster, opened.spec):",
        ("sync/rounds/test_ballot_box.py::test_an_attempt_of_another_term_is_not_served",),
    ),
    Mutation(
        "bound-with-another-weight",
        "An attempt binds the contribution that it was opened with: other data is not added up with its weight.",
        "if (c.weight, c.note) != (part.weight, part.note):",
        "if not c.weight:",
        (
            "sync/rounds/test_participant.py::test_an_attempt_binds_exactly_the_contribution_that_it_was_opened_with",
            "properties/test_agreement_safety.py::test_rounds_are_safe_in_chaos_and_live_after_it",
        ),
    ),
    Mutation(
        "replaced-in-one-attempt-only",
        "Of each attempt it is told anew who was replaced: connections are trusted anew each time that they are used.",
        "        self._unseated = frozenset()\n        if",
        "        if",
        ("sync/rounds/test_unseated.py::test_of_each_attempt_that_is_told_anew",),
    ),
)
