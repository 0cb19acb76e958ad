"""The rules of `ictp2p/sync/optimizers/reload.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "shard-state-as-a-whole",
        "A newcomer's optimizer holds parts of distributed tensors where its parameters are such.",
        "        return as_part_of(value, parameter)\n",
        "        return value\n",
        ("sync/model/test_sharding.py::test_shards_are_trained_saved_and_healed_as_whole_models_are",),
    ),
    Mutation(
        "masters-rounded-when-loaded",
        "What an optimizer keeps in float32 of parameters in bfloat16 reaches a newcomer, and comes back, in float32.",
        "    _put_back(optimizer, saved)\n    for",
        "    for",
        (
            "sync/optimizers/test_copies.py::test_masters_of_a_newcomer_are_those_of_its_source",
            "sync/optimizers/test_copies.py::test_masters_come_back_from_a_file_as_they_were",
        ),
    ),
    Mutation(
        "momentum-laid-out-anew",
        "What an optimizer keeps for a parameter lies as that does, on a newcomer and when it is restored.",
        "        if value.stride() != here.stride():\n",
        "        if False:\n",
        (
            "sync/optimizers/test_strides.py::test_nothing_of_a_cluster_that_is_joined_is_laid_out_anew",
            "sync/optimizers/test_strides.py::test_what_was_saved_is_gone_on_from_as_if_it_had_not_been",
        ),
    ),
)
