"""The data plane: flows, tickets, seals, staging."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "dialed-after-close",
        "A connection that was being dialed when its pool was closed is closed too: nobody else would.",
        "ictp2p/bulk/pool.py",
        "        if self._closed:  # while it was dialed: nobody would end it\n",
        "        if False:\n",
        ("bulk/test_pool.py::test_a_ticket_whose_dial_ends_after_the_pool_was_closed_leaves_nothing_open",),
    ),
    Mutation(
        "lost-at-once-unsaid",
        "A connection that ended before a collective could use it is told as that.",
        "ictp2p/bulk/hub.py",
        '"lost at once" if isinstance(c, BulkConnection) else c for',
        "c for",
        ("bulk/test_hub.py::test_a_connection_that_ends_before_it_is_used_is_told_in_words",),
    ),
    Mutation(
        "winner-forgotten",
        "A way that won is given back if whoever asked for it was cancelled meanwhile.",
        "ictp2p/bulk/ways.py",
        "        await _end(trying, spare)\n        raise",
        "        raise",
        ("bulk/test_ways.py::test_who_is_cancelled_while_the_others_end_gives_back_what_was_won",),
    ),
    Mutation(
        "probe-without-end",
        "A probe ends after its seconds, however slow the link.",
        "ictp2p/bulk/streams.py",
        "if self._stopped or now >= self._began + self._seconds:",
        "if self._stopped:",
        ("bulk/test_streams.py",),
    ),
    Mutation(
        "probe-cut-short-taken-in-full",
        "What a probe that was cut short has measured is a lower bound.",
        "ictp2p/bulk/desk.py",
        "limited or bool(header.first)",
        "limited",
        ("bulk/test_hub.py::test_a_probe_that_is_cut_short_is_a_lower_bound_for_both_ends",),
    ),
    Mutation(
        "silent-way-holds-up-the-next",
        "A way to a peer that never answers does not hold up the next one.",
        "ictp2p/bulk/ways.py",
        "_succeeded(trying, reasons, head_start)",
        "_succeeded(trying, reasons, None)",
        ("bulk/test_ways.py::test_a_way_that_never_answers_holds_up_no_other",),
    ),
    Mutation(
        "unheeded",
        "Where both ends dialed at once, each watches over both connections, and takes nobody for silent on either.",
        "ictp2p/bulk/collective.py",
        "            connection.heed(self)\n",
        "            pass\n",
        (
            "bulk/test_collective_faults.py::test_who_sends_on_another_connection_is_not_taken_for_silent_on_this_one",
            "bulk/test_collective_faults.py::test_silence_is_noticed_on_the_connection_that_a_peer_sends_on",
        ),
    ),
    Mutation(
        "tag-not-looked-at",
        "A frame goes to the collective whose tag it bears.",
        "ictp2p/bulk/hub.py",
        "found, _ = self._users.get((connection.peer, header.tag), (None, None))",
        "found = next((user for (peer, _), (user, _) in self._users.items() if peer == connection.peer), None)",
        ("bulk/test_collective.py::test_two_collectives_run_side_by_side",),
    ),
    Mutation(
        "dropped-early-chunk-forgotten",
        "A chunk that came before we had begun, and found no room, is asked for again.",
        "ictp2p/bulk/early.py",
        "            self._dropped[tag] = None\n",
        "",
        ("bulk/test_early.py::test_a_chunk_that_comes_early_is_used_or_sent_again",),
    ),
    Mutation(
        "early-chunk-lost-while-we-begin",
        "A chunk that was being read when we began is ours.",
        "ictp2p/bulk/desk.py",
        "                if not self._bulk.catch_up(self._connection, header, body):\n"
        "                    self.early.keep(header, body)\n",
        "                self.early.keep(header, body)\n",
        ("bulk/test_early.py::test_a_chunk_that_is_being_read_when_we_begin_is_ours",),
    ),
    Mutation(
        "left-but-remembered",
        "Who has left a connection is given nothing more, though the last chunks were its own.",
        "ictp2p/bulk/inbound.py",
        "        self._regular = None\n        if self._user is user:\n",
        "        if self._user is user:\n",
        ("bulk/test_inbound.py::test_who_has_left_is_given_nothing_more_of_its_tag",),
    ),
    Mutation(
        "left-in-mid-body",
        "A body whose first bytes lie in the memory of who has left does not land there.",
        "ictp2p/bulk/inbound.py",
        "            self._target = None\n            self._pieces.clear()\n            self._view = self._own(size)\n",
        "            pass\n",
        ("bulk/test_inbound.py::test_who_has_left_is_given_nothing_more_of_its_tag",),
    ),
    Mutation(
        "trickle-taken-for-silence",
        "A peer that sends a few bytes at a time is slow, not stalled.",
        "ictp2p/bulk/connection.py",
        "            self._wakeups.relax()\n        self._received_at_tick",
        "            pass\n        self._received_at_tick",
        ("bulk/test_tuning.py::test_a_trickle_is_not_taken_for_silence",),
    ),
    Mutation(
        "paced-at-nothing",
        "A neighbour that the plan sends nothing to is not paced at nothing: what is said beside chunks must leave.",
        "ictp2p/collectives/session.py",
        "max(self.plan.seconds, 1e-3) or None for each",
        "max(self.plan.seconds, 1e-3) for each",
        ("collectives/test_execute.py::test_who_gets_no_chunks_from_us_is_not_paced_at_nothing",),
    ),
    Mutation(
        "frames-replayable",
        "A sealed frame opens once and in its turn.",
        "ictp2p/bulk/seal.py",
        "        self._count += 1\n",
        "",
        ("bulk/test_frames.py::test_frames_cannot_be_replayed_or_reordered",),
    ),
    Mutation(
        "begun-forgotten",
        "A peer that is far ahead has begun what it has begun, however much it was.",
        "ictp2p/bulk/desk.py",
        "_REMEMBERED = 4096",
        "_REMEMBERED = 64",
        ("torch_backend/test_group.py::test_hundreds_of_messages_may_be_sent_before_one_is_received",),
    ),
)
