"""The rules of `ictp2p/core/cards.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "any-name-for-a-neighbour",
        "A neighbour is called what a cluster can be called.",
        "    neighbour: ClusterName\n",
        "    neighbour: str\n",
        ("core/test_cards.py::test_a_card_that_names_what_no_cluster_is_called_is_refused",),
    ),
    Mutation(
        "any-name-for-a-worker",
        "A worker is called what a peer can be called: decisions name it.",
        "    peer: PeerName\n",
        "    peer: str\n",
        ("core/test_cards.py::test_a_card_that_names_what_no_peer_is_called_is_refused",),
    ),
    Mutation(
        "worker-listed-twice",
        "A cluster lists each of its workers once.",
        "if len({worker.peer for worker in card.workers}) < len(card.workers):",
        "if False:",
        ("core/test_cards.py::test_an_impossible_card_is_refused_by_name",),
    ),
    Mutation(
        "volatile-listed-first",
        "Of workers that do not all fit into a card those stay whose promises survive a crash.",
        "key=lambda worker: not worker.durable)",
        "key=lambda worker: worker.peer)",
        (
            "core/test_cards.py"
            "::test_a_card_that_is_too_long_keeps_its_leader_and_as_many_as_fit_of_those_who_may_vote_first",
        ),
    ),
)
