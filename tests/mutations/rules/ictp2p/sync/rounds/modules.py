"""The rules of `ictp2p/sync/rounds/modules.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "copied-from-who-is-behind",
        "What a newcomer gets of a module is what the others hold of it, and not another newcomer's.",
        "root = next((c for c in holders[key] if not cards[c].behind), holders[key][0])",
        "root = holders[key][0]",
        ("sync/rounds/test_modules.py::test_who_is_behind_is_never_copied_from_while_another_is_not",),
    ),
)
