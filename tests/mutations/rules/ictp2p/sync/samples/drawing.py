"""The rules of `ictp2p/sync/samples/drawing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "epoch-of-a-broken-sample",
        "A batch that never comes to a step does not keep the epoch from ending.",
        "if self._times[number] < _PATIENCE:",
        "if True:",
        ("sync/samples/test_hand.py::test_a_batch_that_never_comes_to_a_step_does_not_keep_the_epoch_from_ending",),
    ),
)
