"""The rules of `ictp2p/calls/messages.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "withdrawn-and-delivered",
        "A message that its sender has withdrawn is not given by a reply that was on its way.",
        "                if number not in box.waiting:",
        "                if number not in box.waiting and False:",
        ("calls/test_messages.py::test_what_its_sender_has_withdrawn_is_not_given_by_what_is_still_on_its_way",),
    ),
    Mutation(
        "message-overtaken",
        "Who has to ask for a message again is not overtaken by who asks for the next one.",
        "self._line(source, tag), _turns(",
        "_turns(",
        ("calls/test_messages.py::test_who_has_to_ask_again_is_not_overtaken",),
    ),
    Mutation(
        "messages-in-line",
        "Whoever waits for messages that are not sent yet holds up no messages of other tags.",
        "_ASKED = 64\n",
        "_ASKED = 4\n",
        ("calls/test_messages.py::test_who_waits_for_some_messages_holds_up_no_others",),
    ),
    Mutation(
        "messages-all-at-once",
        "Few messages share the line to a cluster at a time, so that the first ones come soon.",
        "_MOVING = 4\n",
        "_MOVING = 64\n",
        (
            "calls/test_boxes.py"
            "::test_so_many_move_at_a_time_as_share_a_line_well_and_what_was_withdrawn_takes_no_place",
        ),
    ),
    Mutation(
        "message-lost-unread",
        "A message stays at its sender until a receiver that has room for it takes it.",
        "                number, message = next(iter(box.waiting.items()))\n",
        "                number, message = box.waiting.popitem(last=False)\n",
        ("calls/test_messages.py::test_what_is_wrong_is_said_and_the_message_stays",),
    ),
    Mutation(
        "message-to-the-deposed",
        "A message goes to who leads its cluster when it is sent, not to who led it when it was asked for.",
        "            self._check_leaders(peer, cluster)\n            if box.waiting:\n",
        "            if box.waiting:\n",
        (
            "calls/test_boxes.py"
            "::test_messages_go_in_order_to_whoever_leads_when_they_are_sent_and_nothing_of_a_tag_is_kept",
        ),
    ),
    Mutation(
        "message-ended-to-the-deposed",
        "Whoever was deposed while a message came is not given the end of it: its heir may be given it.",
        "                self._check_leaders(peer, wanted.cluster)  # its heir",
        "                # its heir",
        (
            "calls/test_boxes.py"
            "::test_a_leader_that_stands_still_holds_up_nothing_of_its_heir_and_is_given_nothing_any_more",
        ),
    ),
    Mutation(
        "heir-held-up",
        "A leader that stands still in the middle of a message does not hold up what its heir asks for.",
        "_turns(box.turns, peer, 1)",
        "_turns(box.turns, PeerId(wanted.cluster), 1)",
        (
            "calls/test_boxes.py"
            "::test_a_leader_that_stands_still_holds_up_nothing_of_its_heir_and_is_given_nothing_any_more",
        ),
    ),
    Mutation(
        "heir-waits-for-a-place",
        "Messages that move to a leader that stands still leave their places to those of its heir.",
        "_turns(self._moving, peer, _MOVING)",
        "_turns(self._moving, PeerId(cluster), _MOVING)",
        (
            "calls/test_boxes.py"
            "::test_a_leader_that_stands_still_holds_up_nothing_of_its_heir_and_is_given_nothing_any_more",
        ),
    ),
    Mutation(
        "message-gone-unheard",
        "A message stays at its sender until the receiver has said that it is there.",
        "            try:\n                yield RECEIPT\n",
        "            box.received(number)\n            try:\n                yield RECEIPT\n",
        (
            "calls/test_boxes.py::test_messages_go_in_order_to_whoever_leads_when_they_are_sent_and_nothing_of_a_tag_is_kept",
        ),
    ),
    Mutation(
        "word-lost-for-good",
        "A receiver whose word was lost is not given the message again: it says with the next request what it has had.",
        "            box.received(wanted.has)\n",
        "",
        (
            "calls/test_boxes.py::test_messages_go_in_order_to_whoever_leads_when_they_are_sent_and_nothing_of_a_tag_is_kept",
        ),
    ),
    Mutation(
        "numbers-of-another-life",
        "Of no life of a sender a message has the number that one of another life had.",
        "int.from_bytes(peer.random_bytes(7))",
        "0",
        ("calls/test_messages.py::test_of_a_message_that_a_former_life_has_sent_nothing_is_concluded",),
    ),
    Mutation(
        "message-lost-at-the-deadline",
        "What is under way when the time of a receive is over comes with the next one.",
        "timeout=timeout, receipt=True)",
        "timeout=timeout)",
        ("sim/test_messages_at_random.py::test_whatever_happens_messages_come_in_their_order_and_once",),
    ),
    Mutation(
        "lost-word-not-asked-for",
        "Whoever has sent all of a message and lost the connection asks whether it has come.",
        "                if number in box.waiting:",
        "                if False:",
        (
            "calls/test_messages.py::test_who_sent_all_of_a_message_and_lost_the_connection_asks_for_the_word",
            "sim/test_messages_at_random.py::test_who_answers_each_message_goes_on_when_connections_are_reset",
        ),
    ),
)
