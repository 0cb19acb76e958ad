"""The rules of `ictp2p/calls/parts.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "part-lent-to-mates",
        "What a program does with its part of a sum changes nothing that a mate may yet be handed.",
        "result.view(self._dtype).clone()",
        "result.view(self._dtype)",
        ("calls/test_parts.py::test_a_part_is_the_programs_own",),
    ),
    Mutation(
        "parts-of-others",
        "A vector is cut by those who are in the round that reduces it, not by those who were in the one before.",
        "        if done.clusters == found.clusters:\n",
        "        if done:\n",
        ("calls/test_parts.py::test_both_rounds_are_repeated_until_the_same_clusters_are_in_both",),
    ),
)
