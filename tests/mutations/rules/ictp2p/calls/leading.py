"""The rules of `ictp2p/calls/leading.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "missed-though-in-it",
        "A round that a dead leader did not live to see the end of is answered to its cluster, which is in it.",
        "if unseen is None or not self._call.alike:",
        "if unseen is None or self._call.alike:",
        ("sim/test_call_deaths.py::test_what_was_committed_as_a_leader_died_is_not_lost_on_its_followers",),
    ),
    Mutation(
        "brought-again-after-it-was-committed",
        "Who leads a cluster brings nothing again that is in a round of which it did not see the end.",
        "if chronicle.answer(call.spec) is not None:  # of this call",
        "if False:  # of this call",
        ("calls/test_leading.py::test_what_was_committed_and_not_heard_of_is_not_brought_again",),
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
        "        self._voted.restart()\n        self._publisher.restart(attempt, parts)\n",
        "        self._publisher.restart(attempt, parts)\n",
        (
            "calls/test_leading.py::test_what_is_voted_is_what_is_held_though_an_attempt_before_it_had_brought_something_else",
        ),
    ),
    Mutation(
        "newcomer-like-any-other",
        "A cluster that was started again says so, and goes to the call that the others are at.",
        "            newcomer=chronicle.newcomer,\n",
        "",
        ("sim/test_calls_unharmed.py::test_who_did_nothing_wrong_sees_no_error",),
    ),
)
