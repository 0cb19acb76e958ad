"""The rules of `ictp2p/core/cards.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
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
