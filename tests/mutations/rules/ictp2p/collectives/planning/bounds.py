"""The rules of `ictp2p/collectives/planning/bounds.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "merged-by-one-member",
        "What merged participants can do is what all of them can do together.",
        "    width, names = member @ apart @ member.T,",
        "    width, names = member @ apart @ member.T / 2,",
        ("collectives/planning/test_bounds.py::test_what_merged_participants_can_do_is_no_less",),
    ),
)
