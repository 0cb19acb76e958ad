"""The rules of `ictp2p/bulk/inbound.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "ring-gone-while-it-is-read",
        "Who takes a body from shared memory may end the connection.",
        "        if position := ring.done():\n",
        "        if position := (self._ring or self).done():  # type: ignore[union-attr]\n",
        ("bulk/test_shared_connections.py::test_who_takes_a_body_may_end_the_connection",),
    ),
    Mutation(
        "memory-for-a-stranger",
        "Who has not shown that it holds the keys of a connection has no body read.",
        "proves = header.kind is Kind.CONFIRM and header.length <= kernel.JUMBO",
        "proves = header.kind is Kind.CONFIRM",
        ("bulk/test_inbound.py::test_whoever_has_not_shown_its_key_makes_nobody_take_memory",),
    ),
    Mutation(
        "left-but-remembered",
        "Who has left a connection is given nothing more, though the last chunks were its own.",
        "        self._regular = None\n        if self._user is user:\n",
        "        if self._user is user:\n",
        ("bulk/test_inbound.py::test_who_has_left_is_given_nothing_more_of_its_tag",),
    ),
    Mutation(
        "left-in-mid-body",
        "A body whose first bytes lie in the memory of who has left does not land there.",
        "            self._target = None\n            self._pieces.clear()\n            self._view = self._own(size)\n",
        "            pass\n",
        ("bulk/test_inbound.py::test_who_has_left_is_given_nothing_more_of_its_tag",),
    ),
    Mutation(
        "user-of-half-a-body-kept",
        "A connection that ends in the middle of a body knows nobody any more who was to have it.",
        "        self._regular = self._user = self._target = None\n",
        "        self._regular = None\n",
        ("bulk/test_connection.py::test_one_that_ends_in_the_middle_of_a_body_keeps_nobody_who_was_to_have_it",),
    ),
)
