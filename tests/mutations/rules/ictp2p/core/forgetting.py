"""The rules of `ictp2p/core/forgetting.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "missing-voter-forgotten",
        "Who votes, and is missing, is known by cluster and address, and dialed, for as long as that is so.",
        "union(context.mates(), voters)",
        "union(context.mates())",
        ("core/test_stack_dialing.py::test_whose_vote_is_missing_is_known_and_dialed_for_as_long_as_it_is",),
    ),
    Mutation(
        "who-is-cut-off-forgets-the-others",
        "Who is cut off from the mesh keeps in mind how to come back.",
        "map(ClusterId, m.mesh.members) if m.rounds.in_touch() else directory.clusters\n",
        "map(ClusterId, m.mesh.members)\n",
        ("core/test_stack_dialing.py::test_who_is_cut_off_from_the_mesh_keeps_in_mind_how_to_come_back",),
    ),
)
