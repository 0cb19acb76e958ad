"""The rules of `ictp2p/sync/rosters/office.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "call-without-a-mate",
        "A call waits longer than a policy for workers of the last group: its sum would lack their tensors.",
        "longer = self._worker.calls and self._sight.roster is not None",
        "longer = False",
        ("sync/rosters/test_office_calls.py::test_a_call_waits_longer_for_those_of_the_last_group",),
    ),
    Mutation(
        "office-of-one-that-stands-still",
        "A leader whose training thread did not come to a meeting makes way for a worker that did.",
        '        if failure.breach.kind == "unmet" and presence.attended < generation:\n',
        "        if False:\n",
        ("sync/rosters/test_absences.py::TestLeader::test_one_that_did_not_go_itself_makes_way",),
    ),
    Mutation(
        "sick-one-silent",
        "All workers of a cluster hear why its groups break one after the other.",
        "trouble, absent = self._failures.trouble(sight.roster, self._in_a_row),",
        "trouble, absent = None,",
        ("sync/rosters/test_absences.py::test_one_that_cannot_build_its_part_costs_the_others_ever_less",),
    ),
    Mutation(
        "idle-office-kept",
        "A leader that does not train makes way for a worker of its cluster that waits to.",
        "            return self._hand_over(now)\n",
        "            return []\n",
        (
            "sync/rosters/test_office_heirs.py::test_a_leader_whose_training_is_not_up_makes_way_for_a_worker_that_waits",
        ),
    ),
    Mutation(
        "yields-and-keeps-the-office",
        "A leader that leaves the group to its mates hands its office over at once.",
        "        if self._worker.presence.yields:\n            return 0.0\n",
        "",
        (
            "sync/rosters/test_office_heirs.py::"
            "test_a_leader_that_yields_to_the_others_of_its_group_makes_way_at_once_and_comes_back_as_any_other",
        ),
    ),
    Mutation(
        "begins-before-it-sees-anybody",
        "Who was started again, and told by a mate that it leads, begins nothing before it sees that mate.",
        "return self._reports.gathered() and not (",
        "return self._reports.gathered() or not (",
        ("sync/rosters/test_office.py::test_who_was_told_that_it_leads_waits_to_see_who_said_so",),
    ),
)
