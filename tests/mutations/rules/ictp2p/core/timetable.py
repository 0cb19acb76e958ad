"""The rules of `ictp2p/core/timetable.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "timeout-not-asked-again",
        "A machine that got an input is asked anew when it wants to be called.",
        "        self._stale[channel] = None\n",
        "        pass\n",
        ("core/test_timetable.py",),
    ),
)
