"""The rules of `ictp2p/bulk/desk.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "sent-ahead-of-an-abort-and-kept",
        "What a collective had sent ahead is kept no longer once it has been given up.",
        "                self.early.forget(header.tag)\n",
        "",
        ("bulk/test_early.py::test_what_an_aborted_collective_had_sent_ahead_is_kept_no_longer",),
    ),
    Mutation(
        "early-chunk-lost-while-we-begin",
        "A chunk that was being read when we began is ours.",
        "if not self._bulk.attaching.catch_up(self._connection, header, body) and self.begun(header.tag):",
        "if self.begun(header.tag):",
        ("bulk/test_early.py::test_a_chunk_that_is_being_read_when_we_begin_is_ours",),
    ),
    Mutation(
        "given-up-and-kept",
        "What comes along with the word that a collective has begun is not kept where that was given up.",
        "catch_up(self._connection, header, body) and self.begun(header.tag):",
        "catch_up(self._connection, header, body):",
        ("bulk/test_early.py::test_of_what_was_given_up_before_it_came_nothing_is_kept",),
    ),
    Mutation(
        "begun-forgotten",
        "A peer that is far ahead has begun what it has begun, however much it was.",
        "_REMEMBERED = 4096",
        "_REMEMBERED = 64",
        ("torch_backend/test_group_messages.py::test_hundreds_of_messages_may_be_sent_before_one_is_received",),
    ),
    Mutation(
        "one-kind-for-all",
        "Requests of one kind take no place of another kind at the peer that serves them.",
        "self._served[request.kind] >= service.limit",
        "self._served.total() >= service.limit",
        ("bulk/test_hub.py::test_a_peer_serves_a_bounded_number_of_requests_of_each_kind",),
    ),
)
