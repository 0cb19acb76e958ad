"""The rules of `sim/invariants/rounds.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-group-binds-everybody",
        "The audit of a round in groups takes each group's frames for its members' alone.",
        "frozenset(PeerId(name) for name in one.participants) & leaders",
        "frozenset(leaders)",
        ("sim/invariants/test_rounds.py::test_e4_frames_of_another_pair_of_the_same_round",),
    ),
)
