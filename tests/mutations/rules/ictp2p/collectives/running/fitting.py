"""The rules of `ictp2p/collectives/running/fitting.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "sums-longer-than-a-connection-holds",
        "No chunk is longer than a connection holds, be it a sum, which halves travel as in float32.",
        "    if plan.chunk * source.partial_itemsize > MAX_CHUNK_BYTES:",
        "    if plan.chunk * source.itemsize > MAX_CHUNK_BYTES:",
        ("collectives/running/test_fitting.py::test_no_chunk_is_longer_than_a_connection_holds_be_it_a_sum",),
    ),
)
