"""The rules of `ictp2p/sync/two_level/gradients.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "shards-step-apart",
        "Of a sharded model all parts are stepped, or none is.",
        ", shards=self._sharded)",
        ")",
        ("sync/cluster/test_scaling.py::test_of_a_sharded_model_no_shard_is_stepped_if_one_overflowed",),
    ),
    Mutation(
        "overflow-of-one",
        "Where one worker's gradients overflow, all workers of its cluster skip the step or none does.",
        "        taken = scaling.look_again(self._inner, shards=self._sharded)\n",
        "        taken = True\n",
        ("sync/cluster/test_scaling.py::test_a_step_in_which_one_worker_overflows_is_skipped_by_all",),
    ),
    Mutation(
        "overflow-counted",
        "Samples whose step all workers of a cluster skipped are in no model, and so are not done.",
        "self._sampler.stepped(heads.marks, heads.left, taken=taken)",
        "self._sampler.stepped(heads.marks, heads.left)",
        ("sync/samples/test_hand.py::test_a_batch_whose_gradients_overflow_is_trained_later",),
    ),
)
