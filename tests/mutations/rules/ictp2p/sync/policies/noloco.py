"""The rules of `ictp2p/sync/policies/noloco.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "own-content-overwritten",
        "A cluster that missed a round of pairs keeps its parameters, which lie nowhere else.",
        "return Name(state) if state.version else state",
        "return state",
        ("sync/policies/test_noloco_heirs.py::test_who_missed_a_round_keeps_what_it_has_and_brings_all_to_the_next",),
    ),
    Mutation(
        "heir-counts-twice",
        "An heir without the result of a committed round of pairs has its training counted once.",
        "if mine and all(torch.equal(former[name], now[name]) for name in now):",
        "if False:",
        (
            "sync/policies/test_noloco_heirs.py::test_an_heir_without_the_result_steps_alone_and_counts_its_training_once",
        ),
    ),
    Mutation(
        "name-says-nothing",
        "States of rounds that were made of other contributions have other names.",
        "CHAIN: chained(self.state.digest, parts)",
        "CHAIN: 0",
        ("sync/policies/test_noloco.py::test_the_name_says_who_was_in_a_round",),
    ),
    Mutation(
        "stepped-in-the-average",
        "What followers are handed after a round under way is its average, not what their leader's step left there.",
        "deltas[name].mul(self._lr)",
        "deltas[name].mul_(self._lr)",
        ("sync/policies/test_noloco.py::test_followers_take_the_step_that_their_leader_took",),
    ),
)
