"""The rules of `sim/faults.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-fault-may-be-anything",
        "A fault whose numbers cannot be is refused when it is made, not in the middle of a run.",
        'limits.objection(value) if limits is not None else ""',
        '""',
        ("sim/test_faults.py::test_a_value_that_cannot_be_is_named_whichever_way_it_comes",),
    ),
)
