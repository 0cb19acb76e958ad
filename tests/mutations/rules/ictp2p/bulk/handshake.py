"""The rules of `ictp2p/bulk/handshake.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "key-of-the-connection-before",
        "A connection's keys are its own: counters are nonces, and none may come twice under one key.",
        "return Hello(purpose, self._me, peer, self._random_bytes(32), ticket",
        "return Hello(purpose, self._me, peer, bytes(32), ticket",
        ("bulk/test_seal.py::test_no_nonce_comes_twice_under_one_key_however_connections_come_and_go",),
    ),
    Mutation(
        "other-sealing-untold",
        "Of a peer that seals where this one does not people are told.",
        "                self._unlike(hello.source)\n",
        "",
        ("bulk/test_pool.py::test_who_does_not_hold_the_keys_is_refused_on_both_sides",),
    ),
    Mutation(
        "taken-unasked",
        "Who is dialed takes a connection for itself only if it had asked for one more.",
        "        if hello.beside and said.purpose is not Purpose.TICKET:\n",
        "        if False:\n",
        ("bulk/test_pool.py::test_who_is_dialed_takes_nothing_for_itself_that_it_did_not_ask_for",),
    ),
)
