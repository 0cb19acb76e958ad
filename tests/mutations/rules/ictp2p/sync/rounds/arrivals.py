"""The rules of `ictp2p/sync/rounds/arrivals.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "door-before-the-quorum",
        "A round that asks for a quorum does not begin without it before the straggler timeout.",
        "if spec.quorum >= 1.0 or deviation is None or len(at) < needed:",
        "if spec.quorum >= 1.0 or deviation is None:",
        ("sync/rounds/test_arrivals.py::test_the_door_by_hand",),
    ),
)
