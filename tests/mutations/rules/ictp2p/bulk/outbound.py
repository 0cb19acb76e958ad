"""The rules of `ictp2p/bulk/outbound.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "pause-hidden-by-what-is-said",
        "A pause of the sender does not count as the link's, whatever else is said in it.",
        "        if frame.kind in _METERED:\n            self._starved = False\n",
        "        self._starved = False\n",
        ("bulk/test_outbound.py::test_a_chunk_says_whether_its_sender_had_none_just_before_whatever_else_was_said",),
    ),
    Mutation(
        "limit-moved-under-who-waits",
        "Who waits until a transport holds nothing does, whatever else changes its limits.",
        "        if self._drained is None:\n            self._transport.set",
        "        if True:\n            self._transport.set",
        ("bulk/test_outbound.py::test_who_waits_until_all_has_left_does_whatever_else_changes_the_limits",),
    ),
    Mutation(
        "room-taken-by-nothing",
        "A body that could not be made takes no place in shared memory: the reader would look for it there.",
        "        frame.put(room)\n        self._write_header(header)\n",
        "        self.ring.wrote(len(room))\n        frame.put(room)\n"
        "        self._write_header(header)\n        return\n",
        (
            "bulk/test_outbound.py::test_a_body_that_is_made_leaves_as_any_other_and_one_that_could_not_be_made_never_was",
        ),
    ),
    Mutation(
        "unmade-and-sent",
        "A body that could not be made is not sent.",
        "            frame.put(view[HEADER_BYTES:])\n",
        "            try: frame.put(view[HEADER_BYTES:])\n            except MemoryError: pass\n",
        (
            "bulk/test_outbound.py::test_a_body_that_is_made_leaves_as_any_other_and_one_that_could_not_be_made_never_was",
        ),
    ),
    Mutation(
        "buffers-pile-up",
        "What a burst of frames left from is not kept for all time.",
        "        del self._free[:-_FREE]\n",
        "",
        ("bulk/test_outbound.py::test_buffers_are_few_and_hold_little_more_than_what_is_on_its_way",),
    ),
    Mutation(
        "still-to-leave-from-the-caller's-memory",
        "When a collective has failed no transport refers to the caller's tensors any more.",
        "        return not self._seal_bodies and self.pending > 0\n",
        "        return False\n",
        ("bulk/test_giving_up.py::test_after_an_abort_no_transport_holds_the_callers_tensor",),
    ),
)
