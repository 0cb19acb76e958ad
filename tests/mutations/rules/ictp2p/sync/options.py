"""The rules of `ictp2p/sync/options.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "numbers-by-their-kind",
        "An option is the same setting whether it is a number of Python's or of NumPy's.",
        "    return found\n",
        "    return value  # type: ignore[return-value]\n",
        ("sync/two_level/test_policy.py::test_numbers_of_numpy_are_numbers",),
    ),
)
