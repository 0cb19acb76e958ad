"""The rules of `ictp2p/sync/cluster/averaging.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "options-that-differ-go-unnoticed",
        "Workers of a cluster that step with different options are told so.",
        "unlike, asks = len({head[5] for head in heads}) > 1,",
        "unlike, asks = False,",
        ("sync/cluster/test_likeness.py::test_another_rate_is_told_once_by_each_with_both_values",),
    ),
    Mutation(
        "sparse-until-joined",
        "Sparse gradients are refused at the first step, and not when another worker joins.",
        "        self._check_layouts()\n",
        "        if group.size > 1:\n            self._check_layouts()\n",
        ("sync/cluster/test_averaging.py::test_sparse_gradients_are_refused",),
    ),
    Mutation(
        "gradient-laid-out-anew",
        "The gradient of a parameter that only another worker used lies as the parameter does.",
        "as_part_of(torch.empty_like(local(tensor)).copy_(mean), tensor)",
        "as_part_of(mean.to(tensor.device, tensor.dtype, copy=True), tensor)",
        ("sync/optimizers/test_strides.py::test_nothing_of_a_cluster_that_is_joined_is_laid_out_anew",),
    ),
    Mutation(
        "left-out-by-one",
        "What one worker leaves out all workers of its cluster leave out.",
        "tuple(head[4] for head in heads if head[4] != NOTHING)",
        "tuple(head[4] for head in heads[group.rank : group.rank + 1] if head[4] != NOTHING)",
        ("sync/samples/test_hand.py::test_what_one_worker_leaves_out_the_others_do_not_train",),
    ),
    Mutation(
        "batch-twice-in-a-step",
        "Of two workers with the same batch in one step only the first counts.",
        "mark != NOTHING and mark in marks[:rank]",
        "False",
        ("sync/samples/test_sampler.py::test_every_sample_once_per_epoch",),
    ),
    Mutation(
        "constants-averaged",
        "A buffer that nobody changes is no part of a step's mean, whose rounding would change it.",
        "mine += _differ(self._buffers, self._common) if group.size > 1 else [False for _ in self._buffers]",
        "mine += [True for _ in self._buffers]",
        ("sync/cluster/test_averaging.py::test_buffers_that_nobody_changes_are_no_part_of_a_step",),
    ),
)
