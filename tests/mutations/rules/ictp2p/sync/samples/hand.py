"""The rules of `ictp2p/sync/samples/hand.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "batches-counted-twice",
        "No batch is counted with the sampler by two that hand it on.",
        "if self._hand.tellings != before:",
        "if False:",
        ("sync/samples/test_hand.py::test_batches_that_are_counted_twice_are_refused",),
    ),
    Mutation(
        "skipped-step-counted",
        "A batch without a step is counted neither for itself nor in the name of the next one.",
        "passed = self.take() if self._given == self._batches else None",
        "passed = None",
        ("sync/samples/test_hand.py::test_a_batch_whose_gradients_overflow_is_trained_later",),
    ),
    Mutation(
        "loader-out-of-order",
        "A loader that gives batches in another order than they were drawn in is refused.",
        'if not getattr(loader, "in_order", True):',
        "if False:",
        ("sync/samples/test_hand.py::test_a_loader_that_gives_batches_out_of_order_is_refused",),
    ),
)
