"""The rules of `ictp2p/bulk/upgrades.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "relayed-for-ever",
        "A pair that is reached over a relay looks for a direct way, and takes it.",
        "            self._tasks.spawn(self._try(relayed.peer))\n",
        "",
        ("bulk/test_upgrades.py::test_a_pair_whose_line_is_there_again_leaves_the_relay_at_both_ends",),
    ),
    Mutation(
        "looked-for-without-pause",
        "Who cannot be dialed is dialed after pauses that double.",
        "        self._due[relayed] = due, pause\n",
        "",
        ("bulk/test_upgrades.py::test_a_way_is_looked_for_after_pauses_that_double_up_to_ten_minutes",),
    ),
    Mutation(
        "older-ones-preferred",
        "Only a direct connection that becomes ready proves that the way is there again.",
        "        if made.relayed or made.beside:\n            return\n",
        "",
        (
            "bulk/test_upgrades.py::test_a_direct_connection_that_becomes_ready_comes_before_relayed_ones_and_an_older_one_does_not",
        ),
    ),
    Mutation(
        "relay-left-under-the-other-end",
        "What is superseded stays while the other end may be in the middle of something there.",
        "        elif not relayed.idle or relayed.received != received:\n",
        "        elif not relayed.idle:\n",
        ("bulk/test_upgrades.py::test_what_is_superseded_ends_once_nothing_has_passed_for_as_long_as_a_stall",),
    ),
    Mutation(
        "last-way-let-go",
        "A relayed connection that is left, since the direct one was lost, is not let go.",
        "                self._superseded.pop(each, None)\n",
        "",
        (
            "bulk/test_upgrades.py::test_what_is_superseded_is_there_when_the_direct_one_is_lost",
            "bulk/test_upgrades.py::test_the_last_way_is_not_let_go_when_something_else_begins",
        ),
    ),
)
