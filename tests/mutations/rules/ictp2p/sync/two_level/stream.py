"""The rules of `ictp2p/sync/two_level/stream.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "told-errors-without-a-type",
        "Followers raise an error of the type that their leader had.",
        "        return RoundError\n    return kind\n",
        "        return RoundError\n    return RoundError\n",
        ("sync/two_level/test_landing.py::test_the_error_that_stopped_the_leader_is_everybody_s",),
    ),
)
