"""The rules of `ictp2p/sync/state/manifest.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "dimensions-without-end",
        "What is checked of a state is what those who are sent its manifest insist on.",
        "        if len(each.shape) > _DIMENSIONS:\n",
        "        if False:\n",
        ("sync/state/test_manifest.py::test_what_is_checked_is_what_others_will_read",),
    ),
)
