"""The rules of `ictp2p/bulk/reaching.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "cut-line-dialed-first",
        "Relays are tried before a peer is dialed of which nothing is heard.",
        "around + direct if peer in named else direct + around",
        "direct + around",
        ("bulk/test_pool.py::test_relays_are_tried_before_who_is_not_heard_of",),
    ),
    Mutation(
        "dialed-once",
        "Who is not ready soon, though it was reached, is dialed again with small packets.",
        "            self._shrink(host)\n",
        "            pass\n",
        ("bulk/test_pool.py::test_who_is_not_ready_soon_is_dialed_again_with_small_packets",),
    ),
    Mutation(
        "anybodys-connection",
        "Who asks to be dialed takes what answers its ticket, and not what the other end made for itself.",
        "(each for each in self._pool.among(peer) if each.ticket == ticket)",
        "(each for each in self._pool.among(peer))",
        ("bulk/test_doubling.py::test_what_the_other_end_makes_for_itself_is_not_taken_for_what_it_was_asked_for",),
    ),
    Mutation(
        "late-ones-stay",
        "What comes of a ticket for which nobody waits any longer is ended.",
        "            self._late.append(ticket)",
        "            pass",
        ("bulk/test_doubling.py::test_where_dialing_takes_long_there_are_no_more_than_are_used",),
    ),
    Mutation(
        "given-up-as-it-came",
        "What came of a ticket in the moment in which it was given up is ended as well.",
        "        if came is None:\n",
        "        if True:\n",
        ("bulk/test_doubling.py::test_one_that_comes_in_the_turn_in_which_it_was_given_up_stays_at_neither_end",),
    ),
)
