"""The rules of `ictp2p/sync/samples/leases.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "leases-for-ever",
        "What was leased to a cluster that is gone is trained by others.",
        "            blocks[blocks == _SEATED + seat] = FREE\n",
        "",
        ("sync/samples/test_leases.py::test_who_misses_more_rounds_than_are_kept_loses_its_lease",),
    ),
)
