"""The rules of `ictp2p/bulk/stripes.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "stripes-that-gain-nothing",
        "Several connections stay where they were seen to carry more than one, and nowhere else.",
        "            if together.size / together.seconds < GAIN * alone.size / alone.seconds:",
        "            if together.size / together.seconds <= 0:",
        ("bulk/test_stripes.py::test_a_way_whose_line_is_full_keeps_its_one_connection_and_is_not_tried_again",),
    ),
    Mutation(
        "trials-without-measure",
        "A trial of several connections sends no more than the probe before it was granted.",
        "            together = await measure((first, *made))\n",
        "            await measure((first, *made))\n            together = await measure((first, *made))\n",
        ("bulk/test_stripes.py::test_what_trials_send_is_at_most_what_the_probes_before_them_were_granted",),
    ),
    Mutation(
        "more-in-vain-for-ever",
        "Where no more connections can be made that is not tried with each transfer again.",
        "                self._vain[first.peer] = self._clock() + AGAIN  # what there is stays",
        "                pass",
        (
            "bulk/test_doubling.py::"
            "test_what_could_be_made_stays_and_the_rest_is_tried_again_with_another_first_connection",
        ),
    ),
    Mutation(
        "vain-for-ever",
        "Where no more connections could be made that is tried again, however long the first one lives.",
        "self._clock() + AGAIN",
        "math.inf",
        ("bulk/test_doubling.py::test_what_could_not_be_made_is_tried_again_after_a_while",),
    ),
    Mutation(
        "many-hold-as-much-each",
        "Many connections together hold no more in their transports than a few.",
        "each.backlog.hold_as_one_of(len(together), COUNT)",
        "each.backlog.hold_as_one_of(1, COUNT)",
        ("bulk/test_doubling.py::test_there_are_twice_as_many_as_long_as_buffers_hold_all_of_them_back",),
    ),
    Mutation(
        "stripes-of-the-dead",
        "Nothing is kept of a connection that ended before it was noted.",
        "        if not made.closed:\n            self._kept.setdefault",
        "        if True:\n            self._kept.setdefault",
        ("bulk/test_doubling.py::test_one_that_ends_as_soon_as_it_is_made_is_not_kept",),
    ),
    Mutation(
        "first-ones-of-the-dead",
        "Nothing is kept of a peer that died while connections to it were made.",
        "            if not first.closed:  # else",
        "            if True:  # else",
        ("bulk/test_doubling.py::test_nothing_is_kept_of_a_peer_that_dies_while_connections_to_it_are_made",),
    ),
    Mutation(
        "trials-with-the-dead",
        "Nothing is kept of a peer that died while it was tried whether several connections to it carry more.",
        "        if first.peer is not None and not first.closed:",
        "        if first.peer is not None:",
        ("bulk/test_doubling.py::test_nothing_is_kept_of_a_peer_that_dies_while_connections_to_it_are_made",),
    ),
    Mutation(
        "no-way-tried-for-ever",
        "Where no other connection can be made none is tried again beside the same first one.",
        "                self._note_tried(first)\n            return alone",
        "                pass\n            return alone",
        ("bulk/test_stripes.py::test_who_can_be_reached_no_more_is_measured_over_one",),
    ),
    Mutation(
        "stripes-before-the-beginning",
        "What goes ahead of a peer's beginning goes behind our own word, on the first connection.",
        "        return None if self._hold.inbound is None else self._hold.next_frame()",
        "        return self._hold.next_frame()",
        ("bulk/test_stripes.py::test_nothing_goes_over_a_stripe_before_the_peer_has_begun",),
    ),
)
