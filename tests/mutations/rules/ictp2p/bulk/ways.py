"""The rules of `ictp2p/bulk/ways.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "winner-forgotten",
        "A way that won is given back if whoever asked for it was cancelled meanwhile.",
        "        await _end(trying, spare)\n        raise",
        "        raise",
        ("bulk/test_ways.py::test_who_is_cancelled_while_the_others_end_gives_back_what_was_won",),
    ),
    Mutation(
        "silent-way-holds-up-the-next",
        "A way to a peer that never answers does not hold up the next one.",
        "_succeeded(trying, reasons, head_start)",
        "_succeeded(trying, reasons, None)",
        ("bulk/test_ways.py::test_a_way_that_never_answers_holds_up_no_other",),
    ),
)
