"""The rules of `ictp2p/sync/two_level/beginning.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "files-of-no-account",
        "A file counts only where the mesh goes on from it.",
        " and self._loaded.digest == state.contents else None",
        " else None",
        ("sync/two_level/test_shards.py::test_a_mesh_that_is_further_takes_no_notice_of_old_files",),
    ),
    Mutation(
        "half-a-checkpoint-trained-on",
        "A policy that has loaded a part of a checkpoint alone is not entered.",
        "        if self._half_loaded:\n",
        "        if False:\n",
        ("sync/state/test_checkpoint.py::test_a_policy_that_has_loaded_half_a_checkpoint_is_not_entered",),
    ),
    Mutation(
        "loaded-late-passes-for-training",
        "What is loaded into a model before its policy is entered is where training starts, and no training.",
        "            return self._weights.take()\n",
        "            return\n",
        ("sync/two_level/test_late_weights.py::test_what_was_loaded_before_training_began_is_no_training",),
    ),
    Mutation(
        "another-base-model",
        "Clusters whose frozen parameters differ do not train together, unless they say that these are their own.",
        "            self._weights.share(self._frozen())\n            return",
        "            return",
        (
            "sync/model/test_contents.py::test_another_base_model_is_named",
            "sync/model/test_contents.py::test_a_worker_with_another_base_model_than_its_cluster_is_named",
        ),
    ),
    Mutation(
        "checkpoint-written-over",
        "What is written over a checkpoint that was loaded is refused, and no training.",
        "if now.get(name) != digest), None)",
        "if False), None)",
        ("sync/two_level/test_late_weights.py::test_what_is_written_over_a_checkpoint_is_refused",),
    ),
)
