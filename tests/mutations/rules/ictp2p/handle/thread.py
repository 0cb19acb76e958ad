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
    Mutation(
        "policy-ends-with-a-thread",
        "The end of a policy does not wait for a thread that stands still.",
        "            self.loop.wait(told, self.config.global_timeouts.connect)\n",
        "            self.loop.wait(told)\n",
        (
            "handle/test_standing_still.py"
            "::test_a_policy_ends_though_the_peer_stands_still_which_hears_of_it_once_it_goes_on",
        ),
    ),
    Mutation(
        "ended-training-waited-for",
        "Rounds do not wait for a cluster whose training has ended.",
        "            self._peer.set_training(False)\n",
        "",
        ("test_peer.py::test_rounds_do_not_wait_for_a_cluster_that_has_ended_its_training",),
    ),
)
