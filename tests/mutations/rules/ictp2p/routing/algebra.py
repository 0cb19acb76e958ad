"""The rules of `ictp2p/routing/algebra.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "pure-widest-metric",
        "Extending a path makes it strictly worse; the widest path's metric does not, and never settles.",
        "return min(INFINITY, metric + cost)",
        "return max(metric, cost)",
        ("routing/test_algebra.py::test_extending_a_path_makes_it_strictly_worse",),
    ),
)
