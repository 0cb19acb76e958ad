"""What a worker says of itself: all of it each time, and what broke until the next roster is here."""

from __future__ import annotations

import pytest

from ictp2p.sync.rosters.devices import HOST
from ictp2p.sync.rosters.presence import Presence
from ictp2p.sync.rosters.roster import Breach, RosterFailed, RosterReady
from ictp2p.sync.rosters.worker import Worker
from tests.sync.rosters.roster_stage import A, B, a_roster, gpu

GROUP, NEXT = a_roster(1, 1, (A, B)), a_roster(1, 2, (A, B))


@pytest.fixture
def worker() -> Worker:
    worker = Worker(7, Presence(1.0, 60.0))
    worker.wants(True, gpu(B))
    return worker


def test_each_report_has_a_greater_number_and_names_the_roster_that_is_held(worker: Worker) -> None:
    assert worker.report(None) == (RosterReady(True, 7, 1, 1, 0, 0, "", gpu(B)),)
    assert worker.report(GROUP) == (RosterReady(True, 7, 1, 2, 1, 1, A, gpu(B)),)


def test_a_training_thread_that_comes_up_again_is_another_trainer(worker: Worker) -> None:
    (before,) = worker.report(None)
    assert not worker.wants(True, gpu(B)), "no news"
    assert worker.wants(False, HOST)
    (between,) = worker.report(None)
    assert worker.wants(True, gpu(B))
    (after,) = worker.report(None)
    assert isinstance(before, RosterReady)
    assert isinstance(between, RosterReady)
    assert isinstance(after, RosterReady)
    assert (between.ready, between.trainer) == (False, before.trainer)
    assert after.trainer > before.trainer


def test_what_broke_is_told_with_each_report_until_the_next_roster(worker: Worker) -> None:
    breach = Breach("unmet", "timed out")
    assert worker.broke((1, 1), breach, 2.0)
    assert not worker.broke((1, 1), Breach(), 3.0), "the first word counts"
    assert worker.report(GROUP)[1:] == (RosterFailed(1, 1, breach),)
    assert worker.report(GROUP)[1:] == (RosterFailed(1, 1, breach),)
    assert worker.report(NEXT)[1:] == ()


def test_who_cannot_build_its_part_stands_aside_and_says_how_often_in_a_row(worker: Worker) -> None:
    for times, generation in enumerate(((1, 1), (1, 2)), start=1):
        worker.broke(generation, Breach("unbuilt", "Too many open files"), 2.0)
        assert not worker.up
        assert worker.failure().times == times
    assert worker.ready, "it wants into the group all the same"


def test_whether_it_has_trained_outlives_its_training() -> None:
    worker = Worker(1, Presence(1.0, 60.0))
    assert not worker.has_trained
    worker.wants(True, HOST)
    worker.wants(False, HOST)
    assert worker.has_trained
