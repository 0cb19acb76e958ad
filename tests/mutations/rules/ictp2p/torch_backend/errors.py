"""The rules of `ictp2p/torch_backend/errors.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "waited-for-in-a-cycle",
        "A call of a process group that failed leaves no cycle of its error and its tensors.",
        "    twin = type(error).__new__(type(error), *error.args)\n",
        "    return error\n    twin = type(error).__new__(type(error), *error.args)\n",
        ("torch_backend/test_errors.py::test_a_call_that_failed_leaves_nothing_to_the_garbage_collector",),
    ),
)
