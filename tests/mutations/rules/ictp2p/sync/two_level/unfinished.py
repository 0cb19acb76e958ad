"""The rules of `ictp2p/sync/two_level/unfinished.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "who-looks-on-is-told-of-its-end",
        "Who looks on has trained nothing that could be in no round.",
        "if not (at.since and any(at.weights)):",
        "if not at.since:",
        ("sync/two_level/test_unfinished.py::test_who_was_asked_to_leave_or_broke_off_or_looks_on_has_nothing_to_say",),
    ),
)
