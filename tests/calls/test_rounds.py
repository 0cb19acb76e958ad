from __future__ import annotations

import torch

from ictp2p.calls.parts import Gather, Reduce, Scatter
from ictp2p.calls.rounds import AllReduce, Barrier, Broadcast
from ictp2p.calls.tensors import Addend, Bundle
from tests.calls.alone import CLUSTERS, NOBODY


def test_a_call_is_told_in_the_words_of_its_program() -> None:
    """Regression: what was told was a spec's own terms: `all_gather by whom(sum of 0 uint8: float32[2])`."""
    mesh, past = NOBODY, NOBODY
    addend, bundle = Addend(Bundle(torch.ones(2)), "avg"), Bundle([torch.ones(2), torch.ones(1, 1)])
    told = {
        AllReduce(mesh, past, addend).text: "all_reduce of float32[2], op avg",
        AllReduce(mesh, past, addend, "int8").text: "all_reduce of float32[2], op avg, codec int8",
        Reduce(mesh, past, addend, *CLUSTERS).text: "reduce to a of float32[2], op avg",
        Scatter(mesh, past, addend, CLUSTERS, CLUSTERS[0]).text: "reduce_scatter of float32[2], op avg",
        Gather(mesh, past, bundle, CLUSTERS, CLUSTERS[0]).text: "all_gather of float32[2], float32[1, 1]",
        Broadcast(mesh, past, bundle, CLUSTERS[1]).text: "broadcast from b of float32[2], float32[1, 1]",
        Barrier(mesh, past).text: "barrier",
        Barrier(mesh, past, "all_gather", b"float32[2]").text: "all_gather (first round) of float32[2]",
    }
    assert list(told) == list(told.values())
