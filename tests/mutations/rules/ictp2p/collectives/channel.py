"""The rules of `ictp2p/collectives/channel.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "attempt-not-in-the-tag",
        "Frames of another attempt are never taken.",
        'numbers = self.round.to_bytes(8, "big") + self.attempt.to_bytes(4, "big")',
        'numbers = self.round.to_bytes(8, "big")',
        ("bulk/test_collective_faults.py::test_frames_of_another_attempt_are_never_taken",),
    ),
)
