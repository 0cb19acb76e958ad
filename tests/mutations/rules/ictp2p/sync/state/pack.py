"""The rules of `ictp2p/sync/state/pack.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "numpy-ends-training",
        "Numbers of NumPy in an optimizer or a schedule go to newcomers as what they hold.",
        "    value = options.plain(tree)\n",
        "    value = tree\n",
        (
            "sync/two_level/test_policy_deaths.py::test_a_learning_rate_of_numpy_survives_a_death",
            "sync/state/test_pack.py::test_scalars_of_numpy_are_what_they_hold",
        ),
    ),
)
