"""The rules of `ictp2p/bulk/lanes.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "stripes-ended-with-a-fetch",
        "What our own chunks go over stays when a fetch that used it is over.",
        "            if not self._stripes.has(peer, each):",
        "            if True:",
        ("bulk/test_lanes.py::test_what_our_own_chunks_go_over_is_used_and_stays",),
    ),
)
