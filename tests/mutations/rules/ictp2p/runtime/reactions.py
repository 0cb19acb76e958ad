"""The rules of `ictp2p/runtime/reactions.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "round-shares-its-links-with-probes",
        "When a round opens, the probes that are under way end.",
        "self._bulk.stop_probes()",
        "pass",
        ("test_async_peer.py::test_a_round_ends_the_probes_that_hold_its_links",),
    ),
    Mutation(
        "founded-beside-its-own-cluster",
        "Who founded a mesh while its cluster is in another one stops.",
        "        if other is not None and other.cluster == me.cluster:\n",
        "        if False:\n",
        ("sim/test_resume.py::test_who_founds_apart_from_its_own_cluster_stops_and_says_so",),
    ),
    Mutation(
        "waited-for-again-and-again",
        "Who was waited for until it had the state is a straggler like others from then on.",
        "                self._control.caught_up()\n",
        "",
        (
            "sim/test_world.py"
            "::test_who_takes_longer_for_that_than_stragglers_are_waited_for_catches_up_too_and_is_waited_for_no_more",
        ),
    ),
    Mutation(
        "restart-kept-from-the-data-plane",
        "The data plane hears of peers that have restarted.",
        "                self._bulk.distrust(peer, restarted=True)\n",
        "                pass\n",
        ("runtime/test_reactions.py::test_no_data_connection_to_the_former_life_of_a_peer_is_used_again",),
    ),
    Mutation(
        "silence-kept-from-the-data-plane",
        "The data plane hears of links that have fallen silent.",
        "            self._bulk.distrust(leader)\n",
        "            pass\n",
        ("sim/test_cut_lines.py",),
    ),
)
