"""The rules of `ictp2p/torch_backend/options.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "any-silence",
        "A silence that a rank in good health does not survive is refused where it is chosen.",
        "if not _STALL <= value < math.inf:",
        "if value < 0:",
        ("torch_backend/test_options.py::test_a_value_that_cannot_be_is_named",),
    ),
)
