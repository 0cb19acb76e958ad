"""The rules of `ictp2p/sync/cluster/replica.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "copied-though-it-does-not-fit",
        "A worker becomes a copy of another one whole, or stays as it is.",
        "        if wrong is not None:\n            raise ConfigError(",
        "        if False:\n            raise ConfigError(",
        ("sync/two_level/test_replaced.py::test_a_copy_that_does_not_fit_changes_nothing",),
    ),
)
