"""The rules of `ictp2p/handle/thread.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "unbegun-is-waited-for",
        "Nobody waits for the end of a round that never began.",
        "            if not began:\n",
        "            if False:\n",
        ("training/test_conversation.py::test_an_interrupt_does_not_wait_for_a_round_that_never_began",),
    ),
    Mutation(
        "still-peer-waited-for",
        "Who counts seconds does not wait for a peer that stands still.",
        "            return self.loop.call(act, seconds)\n",
        "            return self.loop.call(act)\n",
        ("handle/test_standing_still.py::test_who_counts_seconds_does_not_wait_for_a_peer_that_stands_still",),
    ),
    Mutation(
        "folder-of-an-interrupted-start",
        "A start that is interrupted while the peer is made leaves its data folder to whoever starts it again.",
        "        loop.close(end)\n",
        "        loop.close()\n",
        ("handle/test_process_ends.py::test_an_interrupt_while_a_peer_is_made_leaves_its_folder_free",),
    ),
)
