"""The rules of `ictp2p/collectives/running/session.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "contribution-left-in-the-ring",
        "A contribution that cannot be added at once is copied out of memory that the sender writes again.",
        "        if chunk in staged and not isinstance(body.obj, bytearray):",
        "        if chunk not in staged:",
        ("collectives/running/test_session.py::test_any_interleaving_ends_everywhere_with_the_right_elements",),
    ),
    Mutation(
        "line-full-of-what-may-fail",
        "Before a neighbour has begun no more leaves for it than it takes its word to come.",
        "return min(planned, EARLY_CHUNKS, EARLY_BYTES // self._chunk_bytes)",
        "return min(planned and EARLY_CHUNKS, EARLY_BYTES // self._chunk_bytes)",
        ("collectives/running/test_session.py::test_no_more_goes_ahead_than_leaves_in_a_round_trip",),
    ),
    Mutation(
        "paced-at-nothing",
        "A neighbour that the plan sends nothing to is not paced at nothing: what is said beside chunks must leave.",
        "max(self.plan.seconds, 1e-3) or None for each",
        "max(self.plan.seconds, 1e-3) for each",
        ("collectives/running/test_execute.py::test_who_gets_no_chunks_from_us_is_not_paced_at_nothing",),
    ),
    Mutation(
        "early-chunk-frees-nobody",
        "Who waits until others have caught up is told when a chunk that goes ahead was what they lacked.",
        "        self._release()\n        early =",
        "        early =",
        ("collectives/running/test_session.py::test_who_waited_for_a_chunk_that_went_ahead_is_told_once_it_has",),
    ),
    Mutation(
        "gone-before-it-was-kept",
        "Who sent a chunk ahead stays until it hears that it was kept, or has sent it again.",
        "not (self._early or self._again or self.ended.done())",
        "not self.ended.done()",
        (
            "collectives/running/test_session.py::test_what_was_kept_is_not_sent_again",
            "bulk/test_early.py::test_who_sent_ahead_stays_until_that_was_kept_or_sent_again",
        ),
    ),
    Mutation(
        "sent-ahead-and-overwritten",
        "What is sent again is what was sent ahead, whatever was made since where that was made.",
        "early = self._outgoing(piece).kept()",
        "early = self._outgoing(piece)",
        ("collectives/running/test_session.py::test_a_dropped_sum_is_sent_again_as_it_was",),
    ),
    Mutation(
        "given-after-the-end",
        "A collective that has ended gives no connection the caller's memory any more, not even what was to go again.",
        "        if self.ended.done():\n            return None\n",
        "",
        ("collectives/running/test_session.py::test_a_neighbour_is_missed_while_anything_is_owed_or_unheard",),
    ),
    Mutation(
        "own-sum-kept",
        "Every participant takes the root's bytes, and none keeps a sum of its own.",
        "            return views[0]\n",
        "            return memoryview(bytearray(size))\n",
        ("collectives/running/test_execute.py::test_results_land_in_the_output_itself",),
    ),
    Mutation(
        "many-connections-and-few-chunks",
        "A share may be so far ahead that each of several connections has something to send.",
        "self.exchange.spread(node, attachment.connections(peer))",
        "self.exchange.spread(node, 1)",
        ("sim/test_stripes.py::test_there_are_more_as_long_as_losses_are_the_bound",),
    ),
)
