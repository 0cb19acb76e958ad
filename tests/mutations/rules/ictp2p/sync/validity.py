"""The rules of `ictp2p/sync/validity.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "value-longer-than-a-frame",
        "No value is proposed or accepted that is longer than what a frame can carry to who has to know it.",
        "if (size := encoded_size(value)) > MAX_VALUE:",
        "if (size := encoded_size(value)) > 2 * MAX_VALUE:",
        ("sync/rounds/test_room.py::test_an_attempt_that_is_too_long_is_none",),
    ),
    Mutation(
        "version-numbers-go-back",
        "A version has one digest for ever: what is restored gets a new number.",
        "if value.state != expected or not value.state.providers:",
        "if not value.state.providers:",
        ("sync/rounds/test_restore.py::test_a_restore_that_cannot_be_is_refused",),
    ),
)
