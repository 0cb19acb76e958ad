"""The rules of `ictp2p/runtime/data_plane.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "each-failed-probe-warns",
        "A failed probe is told of if the one before it failed as well: else somebody has died, or the line is slow.",
        "            if self._unmeasured.get(wanted.neighbour) == leader:\n",
        "            if True:\n",
        (
            "runtime/test_data_plane.py"
            "::test_a_second_probe_that_fails_is_a_warning_and_a_cluster_without_a_leader_is_not_probed",
        ),
    ),
    Mutation(
        "failed-once-for-good",
        "A probe that failed is no news where one has worked since.",
        "            self._unmeasured.pop(wanted.neighbour, None)\n",
        "            pass\n",
        ("runtime/test_data_plane.py::test_a_probe_that_failed_before_one_that_worked_is_no_news",),
    ),
    Mutation(
        "asks-to-be-dialed-without-an-address",
        "Nobody is asked to dial a peer that has no address: the next way is tried at once.",
        "if self.core.directory.reached_at(peer) is None:",
        "if False:",
        (
            "runtime/test_data_plane.py::test_nobody_is_asked_to_dial_where_there_is_no_address",
            "sim/test_world.py::test_hidden_clusters_take_a_relay_at_once_and_nobody_is_warned",
        ),
    ),
    Mutation(
        "cut-short-for-good",
        "Whether several connections carry more is found out later if a round came first, and anew for another one.",
        "self.bulk.probing.undecided(peer, transfer.size, transfer.seconds):\n",
        "False:\n",
        (
            "sim/test_stripes.py::"
            "test_a_comparison_that_a_round_cut_short_is_made_later_and_again_for_another_connection",
        ),
    ),
    Mutation(
        "other-sealing-of-strangers",
        "Only of members that differ in what they seal people are told, and of each cluster once.",
        "        if cluster is not None and cluster not in self._unlike:",
        "        if cluster is not None:",
        (
            "runtime/test_data_plane.py"
            "::test_of_a_peer_that_encrypts_where_this_one_does_not_people_are_told_once_for_its_cluster",
        ),
    ),
)
