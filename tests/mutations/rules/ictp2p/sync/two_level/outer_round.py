"""The rules of `ictp2p/sync/two_level/outer_round.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "attended-and-made-up-for",
        "A round that was attended and missed leaves nothing due in the middle of the siblings' phase.",
        "self._contribution.attends_only = progress.due = False",
        "self._contribution.attends_only = False",
        ("sync/two_level/test_shards.py::test_a_round_that_was_attended_and_missed_leaves_nothing_due",),
    ),
    Mutation(
        "followers-step-at-the-end",
        "A follower steps from what has arrived while the rest is on its way.",
        "finish, self._restarted, weights.arrived, leaving)",
        "finish, self._restarted, waits=leaving)",
        ("sync/two_level/test_policy_rounds.py::test_leader_and_followers_step_while_the_average_arrives",),
    ),
    Mutation(
        "leader-cannot-leave",
        "A leader that was asked to leave looks whether it may wait for the mesh.",
        "(*company, self._peer.check_leaving)",
        "company",
        ("sim/test_last_round.py::test_it_leaves_after_the_stall_whether_it_leads_or_follows_or_was_never_let_in",),
    ),
)
