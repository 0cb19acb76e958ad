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
    Mutation(
        "follower-cannot-leave",
        "A follower that was asked to leave looks whether it may wait, each time that its leader says that it does.",
        "            waits()\n",
        "            pass\n",
        ("sim/test_last_round.py::test_it_leaves_after_the_stall_whether_it_leads_or_follows_or_was_never_let_in",),
    ),
)
