"""The rules of `ictp2p/bulk/connection.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "any-card-believed",
        "Whoever seals with the keys of a card proves that the card is its own.",
        "        self._check(proof)\n",
        "",
        ("bulk/test_pool.py::test_who_does_not_hold_the_keys_is_refused_on_both_sides",),
    ),
    Mutation(
        "dropped-like-one-that-has-said-all",
        "Who drops a connection tells the other end so.",
        "            tuning.reset(self.transport)\n",
        "            self.transport.abort()\n",
        ("bulk/test_sockets.py::test_who_drops_a_connection_does_not_look_like_one_who_has_said_all",),
    ),
    Mutation(
        "torn-like-one-that-has-said-all",
        "A connection that ends within a frame has not brought all that was sent on it.",
        "        torn = self._header is not None or self._have\n",
        "        torn = False\n",
        ("bulk/test_connection.py::test_one_that_ends_within_a_frame_has_not_brought_all_that_was_sent",),
    ),
    Mutation(
        "proof-in-a-small-packet",
        "A handshake shows that large packets get there.",
        "keys.proof.ljust(kernel.segment(self.transport), ",
        "keys.proof.ljust(0, ",
        ("sim/test_swallowed.py::test_where_large_packets_are_lost_from_the_start_no_call_waits_for_them",),
    ),
    Mutation(
        "slow-taken-for-rested",
        "A connection that waits for its line is not at rest, however long ago its last frame was.",
        " or self._outbound.pending > size + SEALS:",
        ":",
        ("bulk/test_renewal.py::test_a_connection_renews_as_it_sends_and_not_with_the_first_after_a_rest",),
    ),
    Mutation(
        "ring-holds-back-words",
        "What is small passes shared memory that is full.",
        " and (self._control or not self._throttle.holds_back()):",
        " and not self._throttle.holds_back():",
        ("bulk/test_shared_connections.py::test_what_is_small_passes_a_ring_that_is_full",),
    ),
    Mutation(
        "copied-over-a-short-way",
        "Over a short way nothing large is sent ahead, which would have to be copied.",
        "seconds if seconds > tuning.NEARBY else 0.0",
        "seconds",
        ("bulk/test_early.py::test_over_a_long_way_large_chunks_come_early_too",),
    ),
    Mutation(
        "never-seems-to-have-rested",
        "A connection on which nothing was sent for long is asked whether it has rested.",
        "self._wrote_at = self._wrote_at, self._clock()\n",
        "self._wrote_at = self._wrote_at, float('inf')\n",
        ("bulk/test_resting.py::test_the_kernel_is_not_asked_about_a_rest_before_there_can_have_been_one",),
    ),
    Mutation(
        "chunk-swallowed",
        "A chunk that could not leave for want of memory ends its collective, wherever it was asked for.",
        "            frame.broke(error)\n",
        "",
        (
            "bulk/test_collective_faults.py::test_memory_that_is_lacking_for_what_leaves_ends_its_collective_with_that_error",
        ),
    ),
    Mutation(
        "kick-unheard",
        "Whoever says that there is something to send again is asked for it.",
        "            self._willing[user] = None\n            self.pump()\n",
        "            self.pump()\n",
        ("bulk/test_connection.py",),
    ),
)
