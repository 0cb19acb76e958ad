"""The rules of `ictp2p/gossip/swim.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "reset-is-death",
        "The end of a connection is a suspicion and never a death.",
        "        if refused:\n            self._table.suspicions[member].settle(now)\n",
        "        if not refused:\n"
        "            effects += self._ledger.bury(member, known.record.incarnation, self._me, now)\n",
        ("gossip/test_swim_crashes.py::test_broken_connection_is_a_suspicion_and_never_a_death",),
    ),
    Mutation(
        "far-as-soon-as-near",
        "News goes over connections that there are; sent to anybody it would take several hops, each time.",
        "near = [name for name in others if name in self._near] or others",
        "near = others",
        ("gossip/test_swim_cost.py::test_news_goes_to_those_that_are_near_and_to_all_if_none_of_them_is_there",),
    ),
    Mutation(
        "nobody-near-nobody-told",
        "Who has no neighbours gossips with whomever it knows.",
        "near = [name for name in others if name in self._near] or others",
        "near = [name for name in others if name in self._near]",
        ("gossip/test_swim_cost.py::test_news_goes_to_those_that_are_near_and_to_all_if_none_of_them_is_there",),
    ),
    Mutation(
        "met-to-be-buried",
        "An active machine takes no dead man's record from another's view whom it does not know.",
        "if not sight.status.present and sight.record.member not in self.members:",
        "if sight.record.left and sight.record.member not in self.members:",
        ("gossip/test_swim_copies.py::test_active_machine_meets_nobody_only_to_bury_him",),
    ),
)
