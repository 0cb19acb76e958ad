"""The rules of `ictp2p/calls/round_call.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "handed-over-and-missed",
        "An answer that a mate handed over is accounted for: whoever got it has not missed that round.",
        "        self.past.chronicle.settle(done.round)  # it may have been handed over by a mate\n",
        "",
        (
            "calls/test_round_call.py::test_an_answer_that_a_mate_handed_over_is_accounted_for_when_this_worker_leads_next",
        ),
    ),
    Mutation(
        "sum-without-its-receiver",
        "A sum that was made without a worker's tensors is no answer to that worker's call.",
        "        if self.adds_up and (came_later or self.past.peer.id not in done.workers):",
        "        if False:",
        ("calls/test_round_call.py::test_a_sum_that_a_mate_hands_over_is_no_answer_for_who_came_too_late_to_it",),
    ),
    Mutation(
        "answer-of-a-former-life",
        "A worker takes no answer from its mates that was decided before its own last call.",
        "        if done.round < self.past.chronicle.settled:",
        "        if False:",
        (
            "calls/test_round_call.py::test_what_its_former_life_was_in_is_no_answer_to_a_worker_that_has_made_calls_since",
        ),
    ),
    Mutation(
        "sum-without-who-is-back",
        "Nor does it get that sum.",
        "if self.adds_up and (came_later or ",
        "if self.adds_up and (",
        ("calls/test_runner.py::test_a_leader_that_was_started_again_has_the_answer_for_its_mates_by_what_they_saw",),
    ),
)
