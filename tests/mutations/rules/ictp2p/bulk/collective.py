"""The rules of `ictp2p/bulk/collective.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "calls-not-compared",
        "Neighbours that call different things under one tag have it fail, and say what they call.",
        "        if checksum != self.call.checksum:\n",
        "        if False:\n",
        (
            "bulk/test_differing.py::test_both_say_what_they_call[True]",
            "torch_backend/test_differing.py::test_who_calls_another_thing_than_the_others_is_told_so_and_so_are_they[0]",
        ),
    ),
    Mutation(
        "waits-for-who-has-ended",
        "Who calls something else and does not say what is not waited for.",
        "call_later(DIFFER_SECONDS, self._receiver.broke, error)",
        "call_later(3600.0, self._receiver.broke, error)",
        ("bulk/test_differing.py::test_who_has_ended_says_nothing_and_is_not_waited_for_long",),
    ),
    Mutation(
        "strangers-not-told-later",
        "Who begins with one that has failed because calls differ hears of it, though it was no neighbour of that one.",
        "                self._given_up(ANYBODY, hold.tag, body)\n",
        "                pass\n",
        ("bulk/test_differing.py::test_who_begins_with_one_that_has_failed_for_it_hears_why",),
    ),
    Mutation(
        "unheeded",
        "Where both ends dialed at once, each watches over both connections, and takes nobody for silent on either.",
        "            connection.heed(self)\n",
        "            pass\n",
        (
            "bulk/test_collective_faults.py::test_who_sends_on_another_connection_is_not_taken_for_silent_on_this_one",
            "bulk/test_collective_faults.py::test_silence_is_noticed_on_the_connection_that_a_peer_sends_on",
        ),
    ),
    Mutation(
        "rests-while-it-waits",
        "A connection that waited for the other to begin is woken again.",
        "        self.connection.wake()  # while we waited for the peer it has rested again\n",
        "",
        ("bulk/test_resting.py::test_the_first_message_of_a_collective_is_as_long_as_the_connection_needs",),
    ),
    Mutation(
        "misfit-ends-the-connection",
        "A chunk that does not fit fails its collective and nothing beside it.",
        "        self._refused = True\n        self._receiver.lost(",
        "        raise error\n        self._receiver.lost(",
        ("bulk/test_collective_faults.py::test_sizes_that_differ_fail_their_collective_and_nothing_beside_it",),
    ),
    Mutation(
        "dropped-for-what-came-after",
        "A connection that took all of an aborted collective stands, whatever others have given it since.",
        "                if connection.flushed < ours:\n",
        "                if connection.holds_memory():\n",
        (
            "bulk/test_collective_faults.py"
            "::test_what_breaks_here_ends_its_collective_with_that_error_and_nothing_beside_it",
        ),
    ),
    Mutation(
        "given-up-with-its-line",
        "An attempt of a round that was given up does not take a slow connection from the next.",
        "return max(1, int(self._stall / ABORT_SHARE / ABORT_SECONDS))",
        "return 1",
        (
            "bulk/test_collective_faults.py"
            "::test_an_attempt_that_a_slow_line_was_given_up_for_does_not_take_the_next_one_with_it",
        ),
    ),
    Mutation(
        "waits-as-long-as-it-is-waited-for",
        "Who waits for a slow line begins the next attempt before the others give it up for that.",
        "int(self._stall / ABORT_SHARE / ABORT_SECONDS)",
        "int(self._stall / ABORT_SECONDS)",
        (
            "bulk/test_collective_faults.py"
            "::test_who_waits_for_a_slow_line_begins_the_next_attempt_before_others_give_it_up",
        ),
    ),
    Mutation(
        "slow-as-its-kernel-takes",
        "A slow line gets on while its other end acknowledges, though its kernel takes nothing meanwhile.",
        "connection.acknowledged <= before:",
        "connection.flushed <= before:",
        ("bulk/test_collective_faults.py::test_a_slow_line_gets_on_while_its_kernel_takes_nothing",),
    ),
    Mutation(
        "waits-for-what-no-attempt-follows",
        "Who calls without agreement waits a second for what leaves, and no longer.",
        "        if any(hold.call is not UNSAID for hold in self._holds.values()):\n",
        "        if not self._holds:\n",
        (
            "bulk/test_collective_faults.py"
            "::test_an_attempt_that_a_slow_line_was_given_up_for_does_not_take_the_next_one_with_it",
        ),
    ),
    Mutation(
        "broken-here-blamed-there",
        "What breaks in a collective here ends that one with its error, and not the connection.",
        "        self._receiver.broke(error)\n",
        "        raise error\n",
        (
            "bulk/test_collective_faults.py"
            "::test_what_breaks_here_ends_its_collective_with_that_error_and_nothing_beside_it",
        ),
    ),
    Mutation(
        "waits-for-the-kernel-for-ever",
        "That all has left is waited for no longer than a collective may take.",
        "            async with asyncio.timeout(timeout):\n",
        "            async with asyncio.timeout(None):\n",
        ("bulk/test_collective.py::test_to_wait_for_the_kernel_has_an_end",),
    ),
    Mutation(
        "the-first-takes-all",
        "What there is goes first to the connection that holds least.",
        "sorted(pulling, key=lambda each: each[0].pending // LITTLE)",
        "pulling",
        ("bulk/test_doubling.py::test_whichever_holds_the_least_is_asked_first",),
    ),
    Mutation(
        "broken-stripe-unsaid",
        "Who still waits for chunks hears of a stripe of the other end that broke.",
        " or (not whole and connection in self.heard and self.expecting())",
        "",
        (
            "bulk/test_stripes.py::test_who_has_sent_all_need_not_be_there_any_more_for_a_stripe_that_breaks_to_be_noticed",
        ),
    ),
    Mutation(
        "closed-where-we-owe",
        "A connection that breaks, or that we still have to send over, ends its collective.",
        "if self._receiver.owing_to(self.peer) or not self._receiver.waiting_on(self.peer):",
        "if not self._receiver.waiting_on(self.peer):",
        ("bulk/test_stripes.py::test_a_connection_that_broke_or_that_we_still_need_ends_the_collective",),
    ),
    Mutation(
        "went-on-waiting-for-nothing",
        "A collective that only waited to be asked for more ends with the connection that would have asked.",
        "if self._receiver.owing_to(self.peer) or not self._receiver.waiting_on(self.peer):",
        "if self._receiver.owing_to(self.peer):",
        ("bulk/test_stripes.py::test_who_only_waited_to_be_asked_for_more_has_ended_when_its_connection_is_closed",),
    ),
    Mutation(
        "misfit-before-its-seal",
        "What a header says of a chunk is acted on once its seal was opened.",
        "            self._misfit = header, error\n",
        "            self._refuse(error)\n",
        (
            "bulk/test_collective_faults.py::test_a_header_that_the_way_has_changed_is_called_forged_and_not_what_the_neighbour_sent",
        ),
    ),
    Mutation(
        "a-part-taken-for-the-whole-call",
        "Who begins a part of a call that has failed elsewhere hears why, and not that it calls something else.",
        "        if why.call == self.call.words or not {*why.suspects} <= {me}:\n",
        "        if why.call == self.call.words:\n",
        ("bulk/test_differing.py::test_who_begins_a_part_that_another_gave_up_before_it_began_it_hears_why",),
    ),
)
