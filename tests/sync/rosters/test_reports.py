"""Whom a leader may count on, by what the workers have told it."""

from __future__ import annotations

import pytest

from ictp2p.sync.rosters.failures import Failures
from ictp2p.sync.rosters.presence import Presence
from ictp2p.sync.rosters.reports import Reports
from ictp2p.sync.rosters.roster import Breach, Roster, RosterFailed, RosterReady
from ictp2p.sync.rosters.sight import Sight
from ictp2p.sync.rosters.worker import Worker
from ictp2p.types import PeerId
from tests.sync.rosters.roster_stage import STORE, A, B, C, D


def report(sequence: int = 1, ready: bool = True, life: int = 1, held: int = 0, attended: int = 0) -> RosterReady:
    """Of a worker that holds the roster of that number of term 1, and went to the meeting of that other one."""
    holds = (1, held, A) if held else (0, 0, "")
    return RosterReady(ready, life, 1, sequence, *holds, attended=(1, attended) if attended else (0, 0))


@pytest.fixture
def sight() -> Sight:
    return Sight(A, (A, B, C, D))


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def reports(sight: Sight, failures: Failures) -> Reports:
    return Reports(sight, failures, Worker(1, Presence(1.0, 1.0)))


def test_only_the_newest_report_of_a_worker_counts(reports: Reports) -> None:
    assert reports.take(B, report(9))
    assert reports.take(B, report(1, ready=False, life=2)), "a later life"
    assert not reports.take(B, report(10)), "a late one of the earlier life"
    assert not reports.take(B, report(1, life=2))
    assert reports.fit() == ()


def test_fit_is_who_is_ready_alive_and_not_doubted(reports: Reports, sight: Sight) -> None:
    for peer in (C, B, D):
        reports.take(peer, report())
    assert reports.fit() == (B, C, D)
    sight.alive, sight.suspects = (A, B, C), frozenset({C})
    assert reports.fit() == (B,)
    reports.take(B, report(2, ready=False))
    assert reports.fit() == ()


def test_a_first_roster_waits_for_everyone_and_a_later_one_for_the_members_of_the_last(
    reports: Reports, sight: Sight
) -> None:
    reports.take(B, report())
    assert not reports.gathered()
    sight.roster = Roster(1, 1, (C, B), STORE, 0)
    assert not reports.gathered()
    sight.suspects = frozenset({C})
    assert reports.gathered(), "nor for who is doubted"


def test_who_did_not_go_to_a_meeting_in_which_others_waited_is_absent(
    reports: Reports, sight: Sight, failures: Failures
) -> None:
    sight.roster = Roster(1, 1, (A, B, C), STORE, 0)
    reports.take(B, report(held=1, attended=1))
    reports.take(C, report(held=1))
    failures.learn(sight.roster, B, RosterFailed(1, 1, Breach("broke")))
    assert reports.absent() == ()
    failures.learn(sight.roster, B, RosterFailed(1, 1, Breach("unmet")))
    assert reports.absent() == (C,), "the leader knows of itself whether it went"
    assert reports.fit() == (B,)
    assert reports.gathered()


def test_who_is_absent_is_back_once_it_is_ready_though_it_knows_what_is_said_of_it(
    reports: Reports, sight: Sight
) -> None:
    sight.roster = Roster(1, 2, (A, B), STORE, 0, absent=(C, D))
    reports.take(C, report(held=1))
    assert reports.absent() == (C, D)
    reports.take(C, report(2, ready=False, held=2))
    assert reports.absent() == (C, D)
    reports.take(C, report(3, held=2))
    assert reports.absent() == (D,)
    sight.alive = (A, B, C)
    assert reports.absent() == ()


def test_of_those_who_are_not_here_only_the_last_reports_are_kept(reports: Reports, sight: Sight) -> None:
    strangers = [PeerId(f"{life:032x}") for life in range(200)]
    for stranger in (B, *strangers):
        reports.take(stranger, report())
    reports.forget()
    sight.alive = (A, B, *strangers)
    assert reports.fit() == (B, *strangers[-64:])
