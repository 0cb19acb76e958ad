"""The rules of `ictp2p/collectives/running/usable.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "tensors-without-memory",
        "A tensor that has no memory of its own is refused before anybody else hears of the call.",
        "    if not _has_memory(tensor):\n",
        "    if False:\n",
        (
            "collectives/running/test_usable.py",
            "calls/test_arguments.py::test_a_tensor_that_cannot_be_used_is_named_and_the_next_call_is_none_the_worse",
        ),
    ),
)
