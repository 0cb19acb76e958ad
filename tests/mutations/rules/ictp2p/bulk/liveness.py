"""The rules of `ictp2p/bulk/liveness.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "silent-where-nothing-need-come",
        "A connection on which we only say that we are there is not silent: nothing need come on it.",
        "            if not users:  # nothing",
        "            if False:  # nothing",
        ("bulk/test_liveness.py::test_that_a_probe_is_awaited_is_no_use_of_a_connection",),
    ),
    Mutation(
        "silent-while-nobody-asked",
        "A connection is silent only for as long as it is used.",
        "            self._heard = self._looked = self._clock()\n",
        "            self._looked = self._clock()\n",
        ("bulk/test_liveness.py::test_a_connection_that_brought_nothing_to_what_failed_is_not_used_again",),
    ),
    Mutation(
        "small-for-whoever-ends",
        "A connection that ends while bytes move has lost none of them for their size.",
        "return self.awake and self._watch.standing",
        "return True",
        ("bulk/test_liveness.py::test_a_connection_that_ends_while_bytes_move_or_none_are_due_has_lost_none",),
    ),
    Mutation(
        "held-without-a-frame",
        "A connection that is held at little, and has no frame for long, is looked at all the same.",
        "            self._renewal.sent(self._clock())\n",
        "            pass\n",
        ("bulk/test_renewal.py::test_a_connection_that_waits_for_a_slow_line_renews_without_a_frame",),
    ),
    Mutation(
        "ring-hides-a-stall",
        "Who stops reading shared memory has stalled, though its kernel takes every header.",
        "        if ring is not None and ring.crowded():",
        "        if ring is None and self.awake:",
        ("bulk/test_shared_connections.py::test_who_stops_reading_shared_memory_has_stalled",),
    ),
    Mutation(
        "slow-behind-a-relay-given-up",
        "Whoever talks behind a relay that has no room is slow, and not given up.",
        "expecting=expecting, pending=due)",
        "expecting=expecting, pending=pending)",
        (
            "bulk/test_liveness.py::test_while_a_relay_has_no_room_its_other_end_is_given_up_only_if_it_does_not_talk",
            "sim/test_relayed.py::test_whoever_sends_over_a_relay_before_a_slow_line_gives_up_nobody",
        ),
    ),
    Mutation(
        "silent-behind-a-relay-waited-for",
        "Whoever says nothing behind a relay that has no room is given up after the stall deadline.",
        " and connection.received != self._received and ",
        " and ",
        ("bulk/test_liveness.py::test_while_a_relay_has_no_room_its_other_end_is_given_up_only_if_it_does_not_talk",),
    ),
    Mutation(
        "trickle-taken-for-silence",
        "A peer that sends a few bytes at a time is slow, not stalled.",
        "            self._wakeups.relax()\n",
        "            pass\n",
        ("bulk/test_wakeups.py::test_a_trickle_is_not_taken_for_silence",),
    ),
    Mutation(
        "what-looks-after-a-connection-knows-it",
        "What looks after a connection that has ended does not know it.",
        "        self._timer = self._connection = None  # in",
        "        self._timer = None  # in",
        ("bulk/test_connection.py::test_one_that_has_ended_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "unknown-taken-for-cut-off",
        "Where our kernel does not say what was acknowledged, a connection has all of the deadline.",
        "        dark = outstanding and not came",
        "        dark = not came",
        ("bulk/test_liveness.py::test_a_line_that_is_cut_for_all_that_is_seen_has_a_quarter_of_the_deadline",),
    ),
    Mutation(
        "acknowledged-for-nothing",
        "Who acknowledges what was sent is there.",
        "not came and acknowledged == self._acknowledged",
        "not came",
        ("bulk/test_liveness.py::test_a_line_that_is_cut_for_all_that_is_seen_has_a_quarter_of_the_deadline",),
    ),
    Mutation(
        "no-room-taken-for-cut-off",
        "Who has no room for more is there.",
        " or kernel.is_full(connection.transport):\n            return None",
        ":\n            return None",
        ("bulk/test_liveness.py::test_a_line_that_is_cut_for_all_that_is_seen_has_a_quarter_of_the_deadline",),
    ),
    Mutation(
        "one-witness-is-enough",
        "A connection that shows nothing for a moment has all of the deadline while its link is not lost.",
        "if not self._distrusted or self._dark < Watch.FEW",
        "if self._dark < Watch.FEW",
        ("bulk/test_liveness.py::test_a_line_that_is_cut_for_all_that_is_seen_has_a_quarter_of_the_deadline",),
    ),
    Mutation(
        "heard-and-distrusted-all-the-same",
        "Whoever is heard here again has all of the deadline from then on.",
        "self._distrusted = self._distrusted and not came",
        "pass",
        ("bulk/test_liveness.py::test_a_line_that_is_cut_for_all_that_is_seen_has_a_quarter_of_the_deadline",),
    ),
    Mutation(
        "distrusted-for-good",
        "A connection that is used anew is not distrusted for what was said before.",
        "self._distrusted, self._dark = False, 0",
        "self._dark = 0",
        ("bulk/test_liveness.py::test_a_connection_is_trusted_anew_each_time_that_it_is_used",),
    ),
)
