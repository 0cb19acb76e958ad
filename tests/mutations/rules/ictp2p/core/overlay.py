"""The rules of `ictp2p/core/overlay.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "no-ring",
        "A sparse mesh stays connected whichever three clusters fail.",
        "for offset in range(-BESIDE, BESIDE)]",
        "for offset in range(0)]",
        ("core/test_overlay.py::test_nobody_has_fewer_neighbours_than_the_ring_gives",),
    ),
)
