"""The rules of `ictp2p/sync/rosters/reports.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "call-meets-policy",
        "Who makes calls and who trains with a policy are never in one group.",
        "report.ready and (report.calls == calls or not alike)",
        "report.ready",
        ("sync/rosters/test_office_calls.py::test_who_calls_and_who_trains_with_a_policy_are_never_in_one_roster",),
    ),
    Mutation(
        "call-without-who-left-first",
        "A call waits for workers that left the policy before their leader as well.",
        "(here & {*sight.members, *before})",
        "(here & {*sight.members})",
        ("sync/rosters/test_office_calls.py::test_a_call_waits_for_who_left_the_policy_before_its_leader",),
    ),
    Mutation(
        "counted-on-though-it-stands-still",
        "A worker whose training thread did not come to a meeting is left out of the next group.",
        "ready = wants - {*self.absent()}",
        "ready = wants",
        ("sync/rosters/test_absences.py::TestLeader::test_who_was_waited_for_is_left_out_and_told",),
    ),
)
