"""The rules of `ictp2p/bulk/pool.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "dead-connection-used-again",
        "A connection that brought nothing to an attempt that failed is not used for the next one.",
        "if connection.idle and connection.silence >= self._profile.stall / 2:",
        "if False:",
        (
            "bulk/test_liveness.py::test_a_connection_that_brought_nothing_to_what_failed_is_not_used_again",
            "sim/test_stopped_relay.py::test_rounds_go_on_over_another_relay_once_one_stands_still",
        ),
    ),
    Mutation(
        "taken-for-the-first-one",
        "What one end has for itself, and may end at any time, is nobody's first connection to a peer.",
        "        return ready[0] if ready and not ready[0].beside else None",
        "        return ready[0] if ready else None",
        ("bulk/test_lanes.py::test_nobody_begins_anything_on_what_may_end_in_the_next_instant",),
    ),
    Mutation(
        "ended-with-the-wait",
        "A connection for both ends outlasts the wait for it once the other end may have begun on it.",
        "            if connection.beside or connection.peer is None:",
        "            if True:",
        ("bulk/test_pool.py::test_what_both_ends_may_use_outlasts_the_wait_for_it",),
    ),
    Mutation(
        "asked-for-and-not-said",
        "Who is asked for one more connection hears that it is for the other end alone.",
        "beside=self._reaching.one_more(hello.ticket))",
        "beside=False)",
        ("bulk/test_lanes.py::test_nobody_begins_anything_on_what_may_end_in_the_next_instant",),
    ),
    Mutation(
        "late-before-what-came-is-read",
        "What has arrived counts, however late we come to it.",
        "looks: int = _LOOKS",
        "looks: int = 0",
        ("bulk/test_sockets.py::test_who_was_busy_while_a_handshake_was_finished_takes_it",),
    ),
    Mutation(
        "the-dead-left-to-dial",
        "Who may be no more, as its last connection has ended, is dialed, and not waited for.",
        " and peer not in self._parted:",
        ":",
        ("bulk/test_pool.py::test_who_may_be_no_more_is_dialed_at_once_and_not_left_to_dial",),
    ),
    Mutation(
        "back-for-itself-alone",
        "Who has made a connection for itself alone is not waited for to make a first one.",
        "        if not connection.beside:\n",
        "        if True:\n",
        (
            "bulk/test_pool.py::"
            "test_who_lost_its_first_connection_dials_though_the_other_end_has_made_one_for_itself_since",
        ),
    ),
    Mutation(
        "all-the-dead-remembered",
        "Nothing is kept for ever of who is no more.",
        "if len(self._parted) > _PARTED:",
        "if False:",
        ("bulk/test_pool.py::test_so_many_are_remembered_who_may_be_no_more",),
    ),
    Mutation(
        "stalled-again-and-again",
        "Who has stalled is dialed with small packets.",
        "                self._shrink(connection.host)\n                self.distrust",
        "                self.distrust",
        (
            "bulk/test_liveness.py::test_a_connection_that_ends_while_nothing_moves_may_have_lost_large_packets",
            "sim/test_swallowed.py::test_a_way_that_begins_to_lose_large_packets_costs_one_stall",
        ),
    ),
    Mutation(
        "one-stall-for-each-connection",
        "Where one connection has stalled, no other one that nobody uses is kept for the next call to stall on.",
        '                self.distrust(peer, f"another connection: {reason}")\n',
        "",
        ("bulk/test_liveness.py::test_who_stalls_on_one_connection_has_the_others_closed_that_nobody_uses",),
    ),
    Mutation(
        "one-peer-opens-without-end",
        "A member keeps so many connections open to a peer and no more.",
        "        if len(wanted) > MOST_OF_ONE:\n",
        "        if not wanted:\n",
        ("bulk/test_pool.py::test_one_peer_keeps_so_many_connections_and_no_more",),
    ),
    Mutation(
        "one-peer-has-opened-without-end",
        "What a member asked to be dialed for counts among the connections that it keeps open.",
        "[each for each in kept if each.wanted_there]",
        "[each for each in kept if not each.dialed]",
        ("bulk/test_pool.py::test_what_a_peer_asked_us_to_dial_counts_as_what_it_dialed",),
    ),
    Mutation(
        "first-one-ended-for-too-many",
        "Of too many connections of one peer the oldest goes, and not the first one, which may be the newest.",
        "            oldest = min(wanted, key=lambda each: each.ready_at)",
        "            oldest = wanted[0]",
        ("bulk/test_pool.py::test_of_too_many_the_oldest_goes_and_not_the_first_one",),
    ),
    Mutation(
        "dialed-after-close",
        "A connection that was being dialed when its pool was closed is closed too: nobody else would.",
        "        if self._closed:  # while it was dialed: nobody would end it\n",
        "        if False:\n",
        ("bulk/test_pool.py::test_a_ticket_whose_dial_ends_after_the_pool_was_closed_leaves_nothing_open",),
    ),
    Mutation(
        "came-and-not-looked-for",
        "A connection that came in while a dial hung is taken when the time for that is over.",
        "            if warm := self.warm(peer):  # it came in while we dialed in vain\n                return warm\n",
        "",
        ("bulk/test_pool.py::test_what_came_in_while_a_dial_hung_and_nobody_listened_any_more_is_there_at_the_end",),
    ),
    Mutation(
        "warm-though-cut",
        "Who needs a peer of whom nothing is heard looks for a way, instead of waiting until a warm connection stalls.",
        "                connection.fail(ConnectionLost(why))\n",
        "                pass\n",
        ("bulk/test_hub.py::test_of_who_has_fallen_silent_the_connections_that_nobody_uses_are_given_up",),
    ),
    Mutation(
        "reopened-and-closed-again",
        "A connection that was made since a peer fell silent is kept.",
        "if connection.idle and connection.ready_at <= before and not connection.relayed:",
        "if connection.idle and not connection.relayed:",
        ("bulk/test_hub.py::test_of_who_has_fallen_silent_the_connections_that_nobody_uses_are_given_up",),
    ),
    Mutation(
        "cut-line-waited-out",
        "What is under way over a line that is cut ends once the link counts as lost.",
        "                connection.distrust()\n",
        "                pass\n",
        ("sim/test_cut_lines.py::test_an_attempt_over_a_line_that_is_cut_ends_once_the_link_counts_as_lost",),
    ),
)
