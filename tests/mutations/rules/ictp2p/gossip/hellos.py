"""The rules of `ictp2p/gossip/hellos.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "takes-a-new-sequence-for-late",
        "A neighbour that counts its Hellos anew on a standing connection is measured again at once.",
        "        if hello.sequence <= self._highest - _HISTORY:\n",
        "        if False:\n",
        ("gossip/test_link_hellos.py",),
    ),
    Mutation(
        "deaf-neighbour-unnoticed",
        "A neighbour that does not hear us is lost, though we hear it.",
        "return min(self.heard_at + self._profile.hold * self._interval, deaf_from)",
        "return self.heard_at + self._profile.hold * self._interval",
        (
            "gossip/test_link_hellos.py::TestLoss::"
            "test_a_neighbour_that_is_heard_and_does_not_hear_us_is_lost_until_it_does",
        ),
    ),
    Mutation(
        "echo-as-young-as-a-hello",
        "Who answers each Hello with its next one echoes what may be two intervals old.",
        "(self._profile.hold + 1.0)",
        "1.0",
        ("gossip/test_link_hellos.py::TestLoss::test_two_that_hear_each_other_lose_nothing",),
    ),
    Mutation(
        "heard-in-the-future",
        "A sleep puts off when a dead neighbour is lost by no more than its length: nothing was heard later than now.",
        "min(at + seconds, now) for at",
        "at + seconds for at",
        ("gossip/test_link_lag.py::test_who_is_dead_is_lost_within_the_hold_after_a_sleep_and_does_not_come_back",),
    ),
)
