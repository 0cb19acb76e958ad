"""The rules of `ictp2p/bulk/attaching.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-worse-reason-for-a-better-one",
        "Who begins a collective that has failed because calls differ hears that, and what was called.",
        "        if (ANYBODY, tag) not in self._given_up:",
        "        if True:",
        ("bulk/test_differing.py::test_who_begins_with_one_that_has_failed_for_it_hears_why",),
    ),
    Mutation(
        "one-part-speaks-for-all",
        "A stranger is told what we call as long as any part of the call is under way.",
        "            del calling[hold]\n            if not calling:\n",
        "            if True:\n",
        ("bulk/test_differing.py::test_a_stranger_is_told_as_long_as_any_part_of_a_call_is_under_way",),
    ),
    Mutation(
        "nothing-said-to-who-was-early",
        "Who has begun with us what moves nothing here is told so.",
        "if peer in (ANYBODY, connection.peer) and desk.begun(tag):",
        "if False:",
        ("bulk/test_differing.py::test_who_begins_what_moves_nothing_elsewhere_is_told",),
    ),
    Mutation(
        "nothing-with-anybody",
        "A pair that moves nothing says so to each other alone: with others the call may move something.",
        "        self._note(peer, tag, body)\n        for connection, desk",
        "        self._note(ANYBODY, tag, body)\n        for connection, desk",
        ("bulk/test_differing.py::test_who_begins_what_moves_nothing_elsewhere_is_told",),
    ),
    Mutation(
        "stranger-left-waiting",
        "Who takes us for a neighbour in a collective in which it is none calls another one, and is told so.",
        "is not None and connection.peer not in ours.call.neighbours:",
        "is not None and not ours:",
        (
            "bulk/test_differing.py::test_who_takes_somebody_for_its_neighbour_that_has_others_is_told_and_so_are_these[second]",
        ),
    ),
    Mutation(
        "early-stranger-left-waiting",
        "Who has taken us for a neighbour before we began is told as well.",
        "        if call and holds:\n",
        "        if False:\n",
        (
            "bulk/test_differing.py::test_who_takes_somebody_for_its_neighbour_that_has_others_is_told_and_so_are_these[first]",
        ),
    ),
    Mutation(
        "beside-taken-for-strangers",
        "Neighbours in other parts of the same call are no strangers.",
        "(*peers, *beside)",
        "(*peers,)",
        ("bulk/test_differing.py::test_neighbours_in_other_parts_of_the_same_call_are_no_strangers",),
    ),
    Mutation(
        "another-part-fails-for-it",
        "A neighbour that gives up a part of a call which has yet to begin here fails that part, and no other for it.",
        "ours is not None and peer not in ours.call.neighbours:",
        "ours is not None:",
        ("bulk/test_differing.py::test_a_part_that_is_given_up_elsewhere_before_it_has_begun_here_fails_alone",),
    ),
    Mutation(
        "paced-until-another-one-ends",
        "What one collective's end changes of a connection's pace is its own part of it.",
        "        self._pace(hold, None)\n",
        "        hold.connection.pace(None)\n",
        ("bulk/test_limit.py::test_a_paced_collective_keeps_its_rate_when_another_one_ends",),
    ),
    Mutation(
        "lost-at-once-unsaid",
        "A connection that ended before a collective could use it is told as that.",
        '"its connection ended meanwhile" if isinstance(c, BulkConnection) else c for',
        "c for",
        ("bulk/test_hub.py::test_a_connection_that_ends_before_it_is_used_is_told_in_words",),
    ),
    Mutation(
        "begins-with-a-lone-short-packet",
        "The first message after a rest is as long as the kernel needs to renew its round trip.",
        "second=hold.call.checksum, body=bytes(rested))",
        "second=hold.call.checksum)",
        ("bulk/test_resting.py::test_the_first_message_of_a_collective_is_as_long_as_the_connection_needs",),
    ),
    Mutation(
        "unreached-in-a-cycle",
        "A collective that does not reach all of its neighbours leaves no cycle of its error and its tensors.",
        "            raise await _without(missing, attached)  #",
        "            lost = await _without(missing, attached)\n            raise lost  #",
        ("bulk/test_giving_up.py::test_a_failed_attempt_keeps_no_tensor_once_its_error_is_dropped",),
    ),
    Mutation(
        "new-connections-wait-for-the-next",
        "A collective that is under way goes over connections that are made meanwhile.",
        "            if isinstance(hold, Hold) and hold.connection is first and hold.striped:",
        "            if False:",
        ("bulk/test_doubling.py::test_a_collective_that_is_under_way_uses_those_that_are_made_meanwhile",),
    ),
    Mutation(
        "moved-to-what-is-sent-over",
        "What goes on without its first connection hears of all others that it has.",
        "        if first.closed:\n            return\n        for hold, _ in tuple",
        "        for hold, _ in tuple",
        (
            "bulk/test_doubling.py::test_what_goes_on_without_its_first_connection_is_told_of_all_others_though_more_were_being_made",
        ),
    ),
    Mutation(
        "holds-in-a-cycle",
        "A collective over several connections leaves nothing to the garbage collector.",
        "        hold.stripes = ()  # in a cycle",
        "        # in a cycle",
        ("bulk/test_doubling.py::test_a_collective_over_several_leaves_no_memory_to_the_garbage_collector",),
    ),
    Mutation(
        "stripe-lost-unnoticed",
        "Who sent over a connection that is lost hears of it.",
        "        self._users[hold.peer, hold.tag] = hold, tuple(hold.connections)\n",
        "",
        ("bulk/test_stripes.py::test_a_stripe_that_is_lost_fails_what_goes_over_it_and_only_that",),
    ),
    Mutation(
        "given-up-and-taken",
        "Who comes when a neighbour has given a collective up hears of it, whatever that one had sent ahead.",
        "            hold.aborted(why, self._pool.me)\n            return\n        if desk",
        "            pass\n        if desk",
        ("bulk/test_giving_up.py::test_who_comes_later_goes_by_what_was_said_to_it_though_nobody_else_remembers",),
    ),
    Mutation(
        "given-up-on-the-connection-of-before",
        "Who begins what was given up here hears of it, though the connection on which that was said has ended.",
        "        elif (why := self._given_up.get((connection.peer, tag)) or",
        "        elif (why := None or",
        ("bulk/test_giving_up.py::test_who_comes_after_its_connections_were_lost_hears_that_the_others_gave_up",),
    ),
    Mutation(
        "relayed-while-it-reduces",
        "Who begins a collective on relayed connections looks for a direct way, as who asks for a connection does.",
        "[self._pool.begin_on(peer) for peer in peers]",
        "[self._pool.warm(peer) for peer in peers]",
        ("bulk/test_upgrades.py::test_who_only_reduces_leaves_the_relay_as_well",),
    ),
)
