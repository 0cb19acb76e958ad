"""The rules of `ictp2p/collectives/planning/growing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "stopped-program-believed",
        "What a program holds that was stopped in its middle is no packing.",
        "        if not self._packing.exhausted:\n",
        "        if self._packing:\n",
        (
            "collectives/planning/test_laying.py::test_what_is_packed_never_promises_more_than_lines_carry_however_soon_"
            "the_program_is_stopped",
        ),
    ),
)
