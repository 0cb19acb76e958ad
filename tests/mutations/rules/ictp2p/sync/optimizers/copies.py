"""The rules of `ictp2p/sync/optimizers/copies.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "masters-undo-rounds",
        "What a round brings is in the copies of the parameters that an optimizer steps from.",
        "            _follow(parameter, copy)\n",
        "            pass\n",
        ("sync/optimizers/test_copies.py::test_clusters_that_are_pulled_apart_meet_in_the_middle",),
    ),
    Mutation(
        "momentum-taken-for-a-copy",
        "Momentum of zeros beside a parameter of zeros is no copy of it.",
        " and any(_varies(parameter) for parameter, _ in pairs)\n",
        "\n",
        ("sync/optimizers/test_copies.py::test_zeros_are_no_copy_of_zeros",),
    ),
)
