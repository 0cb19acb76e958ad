"""The rules of `ictp2p/runtime/participation.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "nobody-doubted",
        "Whoever was in an attempt that came to nothing is doubted, however that ended.",
        "                self._doubt(each.leader)\n",
        "                pass\n",
        ("runtime/test_participation.py::test_whoever_was_in_an_attempt_that_came_to_nothing_is_doubted",),
    ),
    Mutation(
        "vote-of-a-call-given-up",
        "What a leader voted for a call that was given up is not the result of the call that it makes next.",
        "if not holding or not standing.is_in(opened):",
        "if not holding:",
        ("sim/test_call_deaths.py::test_a_call_that_is_repeated_after_its_leader_voted_is_not_the_next_one",),
    ),
    Mutation(
        "told-of-an-attempt-that-is-over",
        "What an attempt still brings when the next one has begun is not told as the next one's.",
        "            if standing.opened is not opened:",
        "            if standing.opened is None:",
        ("runtime/test_participation.py::test_what_an_attempt_still_brings_is_not_told_once_the_next_has_begun",),
    ),
    Mutation(
        "plan-of-another-kind",
        "What is to be added up is never copied, nor the reverse: all would hold the same bytes, which nobody brought.",
        "            or check_kind(chosen, opened.spec)\n",
        "",
        ("runtime/test_participation.py::test_a_plan_that_does_something_else_fails_the_attempt_and_not_the_caller",),
    ),
    Mutation(
        "pace-of-what-never-comes",
        "Only results that are to come here are waited for: an attempt nearly over is not taken for one not begun.",
        "Advance(chosen.results(chosen.participants.index(self._me)))",
        "Advance(chosen.shares)",
        ("runtime/test_participation.py::test_of_copies_those_are_waited_for_that_come_here",),
    ),
    Mutation(
        "stands-for-nobody",
        "A contribution stands no longer once its caller has gone on, however it learnt that: else all attempts abort.",
        "if not decided.done() or decided.cancelled() or decided.exception() is not None:",
        "if not decided.done() or decided.cancelled():",
        (
            "runtime/test_participation.py::test_nothing_stands_for_a_caller_that_has_gone_on",
            "sim/test_quorum.py::test_who_gave_up_does_not_stand_in_the_way_of_the_others",
        ),
    ),
    Mutation(
        "cancelled-in-vain",
        "Who is cancelled while its round lets go of the tensors is cancelled.",
        "        if cancelled:\n            raise asyncio.CancelledError\n",
        "",
        (
            "runtime/test_participation.py"
            "::test_who_is_cancelled_while_a_round_that_is_over_lets_go_of_its_tensors_is_cancelled",
        ),
    ),
    Mutation(
        "begins-before-the-last-has-ended",
        "An attempt begins once all earlier ones have let go of the tensors, those too that were not the last.",
        "            await asyncio.wait(standing.ending)  # they must let go of the tensors first\n",
        "            pass\n",
        (
            "runtime/test_participation.py::test_an_attempt_that_ends_says_its_last_word_whole_and_the_next_waits_for_it",
        ),
    ),
    Mutation(
        "parts-among-others",
        "Tensors that are cut for some clusters do not move in an attempt of others.",
        "        if work.among and work.among != tuple(",
        "        if work.among and not tuple(",
        ("sim/test_call_deaths.py::test_whenever_a_cluster_dies_the_others_get_their_parts_of_what_is_left",),
    ),
)
