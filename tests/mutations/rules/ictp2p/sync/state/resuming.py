"""The rules of `ictp2p/sync/state/resuming.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "foreign-checkpoint-by-number",
        "The number of a checkpoint's version means something in the mesh that gave it out, and in no other.",
        'return loaded.lineage != b"" and loaded.lineage == state.lineage',
        "return True",
        (
            "sync/state/test_checkpoint.py::test_a_file_of_this_very_mesh_is_held_as_the_version_that_it_is",
            "sync/state/test_checkpoint.py::test_a_mesh_that_was_founded_without_the_file_is_refused",
        ),
    ),
)
