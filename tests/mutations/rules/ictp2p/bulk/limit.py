"""The rules of `ictp2p/bulk/limit.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "each-under-a-ceiling-of-its-own",
        "All connections of a peer together keep to its ceiling, whatever begins and ends on them.",
        "        self._bucket.spend(size)\n",
        "        pass\n",
        ("bulk/test_limit.py::test_whatever_begins_and_ends_beside_a_collective_the_ceiling_holds",),
    ),
    Mutation(
        "first-come-only-served",
        "Connections under a ceiling send a frame each in turn.",
        "if free and (sender is self._turn or not self._waiting):",
        "if free or sender is self._turn:",
        ("bulk/test_limit.py::test_nobody_goes_before_who_waits",),
    ),
)
