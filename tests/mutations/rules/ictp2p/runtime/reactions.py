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
    Mutation(
        "replaced-and-waited-for",
        "Where bytes of a leader are awaited that another has replaced, the attempt ends once nothing is seen of it.",
        "                self._bulk.hasten(leader)\n",
        "                pass\n",
        (
            "sim/test_replaced_leader.py"
            "::test_a_round_whose_participant_died_is_repeated_with_its_heir_as_soon_as_that_is_known",
        ),
    ),
    Mutation(
        "replaced-and-hung-up",
        "A leader that lives and was replaced finishes what it is in: nobody closes a connection that it may be using.",
        "                self._bulk.hasten(leader)\n",
        "                self._bulk.distrust(leader)\n",
        ("runtime/test_reactions.py::test_of_whom_another_has_replaced_nothing_is_closed_that_it_may_be_using",),
    ),
)
