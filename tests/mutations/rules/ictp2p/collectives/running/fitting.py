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
    Mutation(
        "outputs-cut-anywhere",
        "Outputs of a reduction that are cut where inputs are not are refused before anything is sent.",
        "            if position > share.start and source.together(",
        "            if False and source.together(",
        ("collectives/running/test_fitting.py::test_outputs_are_cut_only_where_inputs_are_or_where_shares_end",),
    ),
)
