"""The rules of `ictp2p/sync/rosters/machine.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "deposed-leader-obeyed",
        "A process group that a deposed leader proposes is not joined.",
        "if (roster.term, sender) < self._claim:",
        "if (roster.term, sender) < (0, self._claim[1]):",
        ("sync/rosters/test_rosters.py::test_a_deposed_leaders_proposal_is_ignored",),
    ),
)
