"""The rules of `ictp2p/sync/state/halves.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "tentative-is-committed",
        "The next state is computed beside the agreed one, which an abort leaves as it was to the bit.",
        "self._halves = [Pages(self.size) for _ in range(2)]",
        "self._halves = [Pages(self.size)] * 2",
        ("sync/state/test_state.py::test_rollback_leaves_the_committed_bytes_alone",),
    ),
    Mutation(
        "fragments-stay-resident",
        "Of the next state only the fragment of the round under way takes up memory.",
        "for start, stop in _runs(self._resident - chunks):",
        "for start, stop in _runs(set()):",
        ("sync/state/test_state.py::test_the_next_state_takes_up_the_memory_of_a_fragment",),
    ),
)
