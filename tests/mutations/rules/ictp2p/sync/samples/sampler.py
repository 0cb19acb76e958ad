"""The rules of `ictp2p/sync/samples/sampler.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "batches-of-another-sampler",
        "A sampler counts its own batches alone.",
        "if isinstance(other, ElasticSampler) and other is not self:",
        "if False:",
        ("sync/samples/test_hand.py::test_batches_of_another_sampler_are_refused",),
    ),
    Mutation(
        "one-batch-counts-for-a-step",
        "Of gradients that are accumulated all samples count, or none.",
        "self._blocks = math.ceil(size / (batch_size * accumulate))",
        "self._blocks = math.ceil(size / batch_size)",
        ("sync/samples/test_sampler.py::test_gradients_that_are_accumulated_count_as_a_whole",),
    ),
    Mutation(
        "left-out-and-trained",
        "A step with batches that are left out has no weight, whatever gradient there is.",
        " and block[1] not in self._passed.blocks(block[0]) else NOTHING",
        " else NOTHING",
        ("sync/samples/test_hand.py::test_a_batch_that_is_left_out_on_purpose_is_given_once",),
    ),
)
