"""The rules of `ictp2p/core/stack.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "dialed-for-ever",
        "Who is named by nobody for as long as membership remembers the dead is not dialed any more.",
        "        self._forgetting.handle_timeout()\n",
        "",
        (
            "core/test_stack_dialing.py"
            "::test_a_dead_mate_is_dialed_far_longer_than_membership_remembers_the_dead_but_not_for_ever",
        ),
    ),
    Mutation(
        "observers-for-ever",
        "Nobody looks on for ever.",
        "        self._observers.handle_timeout()\n",
        "",
        ("core/test_observers.py::test_who_stays_for_a_minute_is_sent_away",),
    ),
    Mutation(
        "wide-ways-to-everybody",
        "A cluster that can be dialed is advertised in class 0 alone.",
        "self.m.routes.set_relayed(self.card.endpoint() is None, now)",
        "self.m.routes.set_relayed(True, now)",
        ("core/test_stack_ways.py::test_models_for_who_cannot_be_dialed_go_over_the_widest_relay",),
    ),
    Mutation(
        "goodbye-that-nobody-hears",
        "The last of a cluster, which leads it since a moment ago, leaves once somebody outside hears it say so.",
        "(self._has_mates() or self._unheard())",
        "self._has_mates()",
        ("sim/test_resume.py::test_a_cluster_that_leaves_as_a_whole_says_so_also_by_who_leads_it_since_a_moment_ago",),
    ),
)
