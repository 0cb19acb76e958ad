"""The rules of `ictp2p/bulk/shared.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "memory-for-every-pair",
        "Memory shared with peers of one host is bounded, however many they are.",
        "        if len(self._living) >= self._most:\n",
        "        if self._most < 0:\n",
        ("bulk/test_shared_connections.py::test_memory_for_no_more_peers_than_are_allowed",),
    ),
    Mutation(
        "written-over-unread",
        "A body in shared memory stands until the reader has said that it is done with it.",
        "if size > self._places.capacity or position - self.freed > self._places.capacity:",
        "if size > self._places.capacity:",
        ("bulk/test_shared.py::test_bodies_come_out_as_they_went_in_until_they_are_said_to_be_read",),
    ),
    Mutation(
        "reader-keeps-to-itself",
        "Who reads shared memory says so before the writer waits for it.",
        "if self._places.position - self._told < self._places.capacity // 4:",
        "if self._places.position - self._told < self._places.capacity:",
        ("bulk/test_shared.py::test_who_waits_for_a_quarter_gets_it_once_all_is_read",),
    ),
    Mutation(
        "memory-that-shrinks",
        "Memory of another process is mapped only if it cannot be taken away under us.",
        "if not sealed or os.fstat",
        "if os.fstat",
        ("bulk/test_shared.py::test_a_file_that_can_shrink_under_us_is_not_opened",),
    ),
    Mutation(
        "memory-of-a-namesake",
        "A process of the same number on another host is none that shares memory with us: the token tells.",
        " if memory[:TOKEN_BYTES] == token else None",
        "",
        ("bulk/test_shared.py::test_a_file_of_another_token_name_or_size_is_not_opened",),
    ),
)
