"""What people are told of rosters: each thing once, and again once it has passed."""

from __future__ import annotations

from msgspec.structs import replace

from ictp2p.sync.rosters.alarms import Alarms
from ictp2p.sync.rosters.roster import GroupAils, Trouble, WorkersStandStill
from tests.sync.rosters.roster_stage import A, B, C, D, a_roster

PLAIN = a_roster(1, 1, (A, B))


def test_who_stands_still_is_named_when_the_group_first_goes_on_without_it() -> None:
    alarms = Alarms()
    without = replace(PLAIN, absent=(C,))
    assert alarms.of(without, None) == [WorkersStandStill((C,))]
    assert alarms.of(without, without) == []
    assert alarms.of(replace(PLAIN, absent=(C, D)), without) == [WorkersStandStill((D,))]
    assert alarms.of(PLAIN, without) == []
    assert alarms.of(without, PLAIN) == [WorkersStandStill((C,))]


def test_a_group_ails_from_the_third_failure_in_a_row_once_for_each_whose_they_are() -> None:
    alarms = Alarms()
    told = []
    for culprit, times in (("", 2), ("", 3), ("", 4), (B, 3), ("", 5), ("", 1), ("", 3)):
        trouble = Trouble(times, culprit, "timed out")
        told += alarms.of(replace(PLAIN, trouble=trouble), PLAIN)
    assert told == [GroupAils(Trouble(times, who, "timed out")) for who, times in (("", 3), (B, 3), ("", 3))]
