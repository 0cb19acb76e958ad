"""The rules of `sim/connection.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "told-before-it-is-written",
        "What a process says behind a write leaves once its disk has done that.",
        "        if self._held_up() and what != RST:",
        "        if False:",
        ("sim/test_network.py::test_what_is_written_behind_what_holds_up_a_process_leaves_after_it",),
    ),
)
