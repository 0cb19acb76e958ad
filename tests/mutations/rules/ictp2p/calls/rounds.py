"""The rules of `ictp2p/calls/rounds.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "missed-though-in-it",
        "A round that a dead leader did not live to see the end of is answered to its cluster, which is in it.",
        "if unseen is None or not self.alike:",
        "if unseen is None or self.alike:",
        ("sim/test_call_deaths.py::test_what_was_committed_as_a_leader_died_is_not_lost_on_its_followers",),
    ),
    Mutation(
        "brought-again-after-it-was-committed",
        "Who leads a cluster brings nothing again that is in a round of which it did not see the end.",
        "if self._past.chronicle.answer(self._spec) is not None:  # of this call",
        "if False:  # of this call",
        ("calls/test_rounds.py::test_what_was_committed_and_not_heard_of_is_not_brought_again",),
    ),
    Mutation(
        "handed-over-and-missed",
        "An answer that a mate handed over is accounted for: whoever got it has not missed that round.",
        "        self._past.chronicle.settle(done.round)  # it may have been handed over by a mate\n",
        "",
        ("calls/test_rounds.py::test_an_answer_that_a_mate_handed_over_is_accounted_for_when_this_worker_leads_next",),
    ),
    Mutation(
        "sum-without-its-receiver",
        "A sum that was made without a worker's tensors is no answer to that worker's call.",
        "        if self.adds_up and (came_later or self._past.peer.id not in done.workers):",
        "        if False:",
        ("calls/test_rounds.py::test_a_sum_that_a_mate_hands_over_is_no_answer_for_who_came_too_late_to_it",),
    ),
    Mutation(
        "answer-of-a-former-life",
        "A worker takes no answer from its mates that was decided before its own last call.",
        "        if done.round < self._past.chronicle.settled:",
        "        if False:",
        ("calls/test_rounds.py::test_what_its_former_life_was_in_is_no_answer_to_a_worker_that_has_made_calls_since",),
    ),
    Mutation(
        "refused-twice-for-one-call",
        "The round that a refused call found the others in is accounted for by that refusal.",
        "        if ended and not newcomer:\n",
        "        if False:\n",
        ("sim/test_call_newcomers.py::test_a_call_that_is_refused_is_one_error_and_the_next_one_is_the_others_next",),
    ),
    Mutation(
        "newcomer-refused-for-good",
        "A newcomer that finds the others at another call stands again with its own, once theirs has ended.",
        "                if not newcomer:\n",
        "                if True:\n",
        (
            "sim/test_call_newcomers.py::test_a_cluster_that_starts_again_in_a_loop_of_two_calls_finds_the_others_at_its_own",
        ),
    ),
    Mutation(
        "voted-on-what-was-there-before",
        "What is voted is the digest of what this attempt brought.",
        "            voted.restart()\n            publisher.restart(attempt, parts)\n",
        "            publisher.restart(attempt, parts)\n",
        (
            "calls/test_rounds.py::test_what_is_voted_is_what_is_held_though_an_attempt_before_it_had_brought_something_else",
        ),
    ),
    Mutation(
        "sum-without-who-is-back",
        "Nor does it get that sum.",
        "if self.adds_up and (came_later or ",
        "if self.adds_up and (",
        ("calls/test_runner.py::test_a_leader_that_was_started_again_has_the_answer_for_its_mates_by_what_they_saw",),
    ),
    Mutation(
        "newcomer-like-any-other",
        "A cluster that was started again says so, and goes to the call that the others are at.",
        "            newcomer=self._past.chronicle.newcomer,\n",
        "",
        ("sim/test_calls_unharmed.py::test_who_did_nothing_wrong_sees_no_error",),
    ),
)
