"""The rules of `ictp2p/torch_backend/engine.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "message-cut-silently",
        "A message that is longer than what takes it is an error, never a part of itself.",
        "        if length.item() != expected:\n",
        "        if False:\n",
        ("torch_backend/test_group_messages.py::test_a_message_arrives_whole_or_not_at_all",),
    ),
)
