"""The rules of `ictp2p/async_peer.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "state-shares-its-links-with-probes",
        "When a chunk of a state leaves, the probes that are under way end.",
        "        self.bulk.stop_probes()\n",
        "",
        ("test_async_peer.py::test_who_sends_a_state_ends_its_probes_and_begins_none",),
    ),
    Mutation(
        "who-sends-a-state-probes",
        "Who sends a state begins no probe.",
        "        self.core.m.links.reserve(self.clock() + seconds)\n",
        "",
        ("test_async_peer.py::test_who_sends_a_state_ends_its_probes_and_begins_none",),
    ),
    Mutation(
        "started-twice-at-once",
        "A peer on an event loop that runs is not started once more: there is one core on one disk.",
        "        if self._begun and not self._closed",
        "        if False and not self._closed",
        ("test_async_peer_life.py::test_a_peer_is_started_once_and_is_none_the_worse_for_a_second_time",),
    ),
    Mutation(
        "trained-on-before-it-is-kept",
        "What is decided by a peer's own vote is no agreed state before that vote is on its disk.",
        "        return self._decided.state if self._decided else None\n",
        "        return self.core.m.rounds.tip[1].state if self.core.m.rounds.tip else None\n",
        ("sim/test_faults.py::test_what_is_decided_by_a_vote_that_the_disk_did_not_take_is_not_trained_on",),
    ),
    Mutation(
        "left-with-the-only-copy",
        "Who leaves has others hold the agreed state before.",
        "            await self.hand_over()\n            await self._departure",
        "            await self._departure",
        ("sim/test_handover.py::test_the_only_holder_of_a_version_leaves_once_another_cluster_holds_it",),
    ),
    Mutation(
        "fetched-though-here",
        "A worker comes first to its own peer for a state that this keeps.",
        "            if not await self._custody.hand_on(ref, state):\n                await fetch_agreed",
        "            if True:\n                await fetch_agreed",
        ("sim/test_handover.py::test_the_only_holder_of_a_version_leaves_once_another_cluster_holds_it",),
    ),
)
