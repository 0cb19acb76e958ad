"""The rules of `sim/max_min.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "caps-before-shares",
        "A flow gets all that it may have only if that is no more than an even part of everything that it passes.",
        "done = active & (limit <= fair)",
        "done = active & (limit < math.inf)",
        ("sim/test_max_min.py::test_shares_fit_and_every_flow_is_held_back_by_something_full",),
    ),
)
