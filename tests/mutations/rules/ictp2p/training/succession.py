"""The rules of `ictp2p/training/succession.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "name-alone-of-its-own-state",
        "What a cluster held itself it takes over with all its content, where of another's it takes but the name.",
        "return mine if mine is not None and not mine.version and mine.entries == kept.entries else receiver",
        "return receiver",
        ("training/test_mesh.py::test_what_this_process_held_before_is_taken_over_from_there",),
    ),
)
