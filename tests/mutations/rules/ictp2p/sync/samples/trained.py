"""The rules of `ictp2p/sync/samples/trained.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "revoked-but-brought",
        "A cluster whose samples others have trained meanwhile does not bring what it trained apart.",
        "            return Fate.REVOKED\n",
        "            return Fate.OUT\n",
        ("sync/samples/test_sampler.py::test_a_cluster_comes_back_after_others_have_trained_its_samples",),
    ),
    Mutation(
        "trained-aloft-trained-again",
        "What was trained while a round was on its way is in the model, and is not trained again.",
        "later = order[self._aloft :]",
        "later: list[int] = []",
        (
            "sync/samples/test_trained.py::"
            "test_what_was_trained_during_a_round_is_not_trained_again_once_that_round_is_in_the_state",
        ),
    ),
)
