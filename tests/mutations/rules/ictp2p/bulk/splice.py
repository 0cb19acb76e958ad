"""The rules of `ictp2p/bulk/splice.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "reset-smoothed-by-a-relay",
        "A relay passes on how a connection ended.",
        "        elif exc is not None or self._gave_up:\n",
        "        elif False:\n",
        ("bulk/test_splice.py::test_whoever_is_behind_a_relay_hears_how_it_ended",),
    ),
    Mutation(
        "relay-that-stalls-again",
        "A relay dials with small packets whoever took nothing.",
        "            self._shrink(self._host)\n            self._gave_up",
        "            self._gave_up",
        ("bulk/test_splice.py::test_who_takes_nothing_any_more_is_cut_off_after_the_deadline",),
    ),
    Mutation(
        "relay-held-for-good",
        "A relay lets go of the way onward though that is so slow that nothing comes for long.",
        "        if not rested or self.transport.get_write_buffer_size():",
        "        if not rested:",
        ("bulk/test_renewal.py::test_a_relay_renews_the_way_onward_while_that_is_slow",),
    ),
    Mutation(
        "relay-held-while-full",
        "A relay looks at the way onward in the pause in which that is full.",
        "            self._renewal.sent(self._clock())\n",
        "            pass\n",
        ("bulk/test_renewal.py::test_a_relay_renews_the_way_onward_while_that_is_slow",),
    ),
    Mutation(
        "relay-that-pauses",
        "A relay keeps its connections from pausing as their ends do.",
        "            self._renewal.sent(now)\n",
        "            pass\n",
        ("bulk/test_renewal.py::test_a_relay_renews_what_it_knows_of_the_way_onward",),
    ),
    Mutation(
        "slow-readers-cut-off",
        "A relay cuts off who takes nothing for the stall deadline, and nobody who reads slowly.",
        "self._watch.check(0, self._written - left, expecting=False, pending=due)",
        "self._watch.check(0, 0, expecting=False, pending=due)",
        ("bulk/test_splice.py::test_who_reads_slowly_gets_everything",),
    ),
    Mutation(
        "relay-behind-a-relay-given-up",
        "A relay does not give up another one that has no room, as long as its reader is heard.",
        "        due = not (talks and kernel.is_full(self.transport))",
        "        due = True",
        ("bulk/test_splice.py::test_another_relay_that_has_no_room_is_given_up_only_once_nobody_talks_behind_it",),
    ),
    Mutation(
        "lost-for-full",
        "Who says something while nothing reaches it is no relay without room, and is given up.",
        "talks and kernel.is_full(self.transport)",
        "talks",
        ("bulk/test_splice.py::test_another_relay_that_has_no_room_is_given_up_only_once_nobody_talks_behind_it",),
    ),
)
