"""The rules of `ictp2p/runtime/alarms.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "differs-in-silence",
        "That results differ is told at once, everywhere, with who differs from whom.",
        "case Decided(value=Close(camps=camps) as close) if camps:",
        "case Decided(value=Close(camps=camps) as close) if not camps:",
        ("runtime/test_events.py::test_results_that_differ_are_told_at_once_to_everybody",),
    ),
)
