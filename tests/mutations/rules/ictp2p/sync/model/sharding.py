"""The rules of `ictp2p/sync/model/sharding.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "ranks-left-out",
        "All who hold a part of a parameter are among the ranks that keep step.",
        "        if lacking:\n",
        "        if False:\n",
        ("sync/model/test_sharding.py::test_shards_are_trained_saved_and_healed_as_whole_models_are",),
    ),
    Mutation(
        "gathered-for-a-shard",
        "What FSDP has gathered for an evaluation is no shard.",
        "            module.reshard()\n",
        "            pass\n",
        ("sync/model/test_sharding.py::test_shards_are_trained_saved_and_healed_as_whole_models_are",),
    ),
    Mutation(
        "copies-come-apart",
        "What several ranks hold as a whole is not averaged by each apart.",
        "if not is_distributed(parameter) or _is_copied(parameter):",
        "if False:",
        ("sync/model/test_sharding.py::test_shards_are_trained_saved_and_healed_as_whole_models_are",),
    ),
)
