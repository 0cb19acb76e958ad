"""The rules of `ictp2p/sync/state/widening.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "kept-though-it-gains-nothing",
        "A fetch has several connections only where more arrives over them.",
        "                return Step.NARROW",
        "                return None",
        ("sync/state/test_widening.py::test_it_is_tried_as_often_as_it_gains",),
    ),
)
