"""The rules of `ictp2p/sync/rounds/ballot_box.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "digests-outvoted",
        "Two different digests abort the attempt; a majority does not make the other one right.",
        "if len(set(count.votes.values())) > 1:",
        "if len(set(count.votes.values())) > len(opened.participants):",
        ("sync/rounds/test_rounds.py::test_different_digests_abort_and_the_odd_one_out_is_barred",),
    ),
    Mutation(
        "two-votes-tell-who-is-wrong",
        "Of digests that differ none is taken for wrong before most have voted for another, or may vote no more.",
        "if 2 * len(camps[0]) <= self._size and",
        "if False and",
        (
            "sync/rounds/test_ballot_box.py"
            "::test_digests_that_differ_end_an_attempt_once_one_is_that_of_most_or_nobody_else_may_vote",
        ),
    ),
    Mutation(
        "commit-without-majority",
        "COMMIT needs the votes of more than half of the participants.",
        "if 2 * len(count.votes) > len(opened.participants):",
        "if count.votes:",
        ("sync/rounds/test_round_waits.py::test_an_attempt_without_a_majority_ends_at_the_hard_deadline",),
    ),
    Mutation(
        "rest-left-behind-by-a-late-majority",
        "Who is a little later than a majority that was itself late still gets into the commit.",
        "took * (1.0 + profile.patience)",
        "0.0 * took",
        ("sync/rounds/test_round_waits.py::test_who_votes_within_that_share_is_in",),
    ),
    Mutation(
        "rest-waited-for-without-end",
        "Who has not voted is not waited for past the hard deadline, however late the majority was.",
        "return since + min(soft, opened.deadline)",
        "return since + soft",
        ("sync/rounds/test_round_waits.py::test_the_rest_gets_a_share_of_what_the_majority_needed",),
    ),
    Mutation(
        "vote-of-another-attempt-counts",
        "A verdict counts for exactly the attempt that it is about.",
        "if v is not None and (v.round, v.attempt) == number}",
        "if v is not None and v.round == opened.round}",
        ("sync/rounds/test_ballot_box.py::test_a_vote_on_an_earlier_attempt_does_not_count",),
    ),
    Mutation(
        "second-verdict-replaces-the-first",
        "The first verdict on an attempt stays: a vote once given is not taken back.",
        "if known is None or (known.round, known.attempt) < (verdict.round, verdict.attempt):",
        "if known is None or (known.round, known.attempt) <= (verdict.round, verdict.attempt):",
        ("sync/rounds/test_ballot_box.py::test_the_newest_attempts_first_verdict_counts",),
    ),
    Mutation(
        "present-verdicts-dropped",
        "Only verdicts on attempts that are over are forgotten.",
        "if (v.round, v.attempt) >= number}",
        "if (v.round, v.attempt) > number}",
        (
            "sync/rounds/test_ballot_box.py"
            "::test_nothing_is_kept_of_attempts_before_the_present_one_and_nothing_that_counts_is_lost",
        ),
    ),
    Mutation(
        "word-of-the-replaced-waited-for",
        "Once all others have spoken, an attempt does not wait for whom another leader has replaced.",
        "            end = now\n",
        "            pass\n",
        ("sync/rounds/test_unseated.py::test_once_all_others_have_spoken_nobody_waits_for_whom_another_has_replaced",),
    ),
    Mutation(
        "one-is-replaced-and-the-others-done",
        "Who has not spoken is waited for, though another participant was replaced: its bytes may all have come.",
        "if all(sight.unseated(",
        "if any(sight.unseated(",
        ("sync/rounds/test_unseated.py::test_whoever_else_has_not_spoken_is_waited_for_all_the_same",),
    ),
)
