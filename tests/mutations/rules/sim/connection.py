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
    Mutation(
        "heard-without-acknowledgments",
        "In the simulator, as in TCP, who gets no acknowledgments falls silent after a moment.",
        " or patience.choked)):",
        ")):",
        ("sim/test_network.py::test_who_gets_no_acknowledgments_falls_silent_until_the_path_is_whole_again",),
    ),
    Mutation(
        "bulk-without-acknowledgments",
        "So does what is large, and has begun to flow.",
        """        \"\"\"Nothing new leaves until what has left is acknowledged.\"\"\"
        self._way.open(False)
""",
        """        \"\"\"Nothing new leaves until what has left is acknowledged.\"\"\"
""",
        ("sim/test_network.py::test_who_gets_no_acknowledgments_falls_silent_until_the_path_is_whole_again",),
    ),
)
