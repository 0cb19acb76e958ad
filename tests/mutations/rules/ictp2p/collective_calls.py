"""The rules of `ictp2p/collective_calls.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "call-drops-silently",
        "A collective call refuses a codec that leaves elements out, since it keeps nothing to bring them later.",
        "        if leaves_out(codec):",
        "        if False:",
        ("calls/test_arguments.py::test_a_codec_that_would_lose_what_it_leaves_out_is_refused",),
    ),
)
