"""What the next roster has to know of how the one before it broke, and whom it believes."""

from __future__ import annotations

import pytest

from ictp2p.sync.rosters.failures import Failures
from ictp2p.sync.rosters.roster import Breach, RosterFailed, Trouble
from tests.sync.rosters.roster_stage import A, B, C, a_roster

GROUP, NEXT = a_roster(1, 1, (A, B)), a_roster(1, 2, (A, B))


def failed(kind: str = "broke", words: str = "", refused: str = "", times: int = 0) -> RosterFailed:
    return RosterFailed(1, 1, Breach(kind, words, refused), times)  # type: ignore[arg-type]


def test_of_a_roster_that_nobody_complained_of_there_is_nothing_to_tell() -> None:
    failures = Failures()
    assert failures.trouble(None, 0) is None
    assert failures.trouble(GROUP, 1) is None
    failures.learn(GROUP, B, failed())
    assert failures.trouble(NEXT, 1) is None


def test_what_is_nobodys_failure_is_told_in_the_words_of_who_said_so_first() -> None:
    failures = Failures()
    failures.learn(GROUP, A, failed(words="timed out"))
    failures.learn(GROUP, B, failed(words="reset by peer"))
    assert failures.trouble(GROUP, 4) == Trouble(4, "", "timed out")


@pytest.mark.parametrize("first", ["culprit", "witness"])
def test_who_could_not_build_its_own_part_is_named_whoever_speaks_first(first: str) -> None:
    failures = Failures()
    told = [(B, failed("unbuilt", "Too many open files", times=3)), (A, failed(words="timed out"))]
    for sender, failure in told if first == "culprit" else reversed(told):
        failures.learn(GROUP, sender, failure)
    assert failures.trouble(GROUP, 1) == Trouble(3, B, "Too many open files"), "and how often in a row it could not"


def test_that_a_meeting_came_to_its_deadline_is_known_of_that_roster_alone() -> None:
    failures = Failures()
    failures.learn(GROUP, B, failed())
    assert not failures.unmet(GROUP)
    failures.learn(GROUP, B, failed("unmet"))
    assert failures.unmet(GROUP)
    assert not failures.unmet(NEXT)


def test_a_library_is_refused_between_exactly_the_workers_between_whom_it_did_not_come_up() -> None:
    failures = Failures()
    failures.learn(GROUP, B, failed(refused="nccl"))
    failures.learn(NEXT, A, failed(refused="nccl"))
    assert failures.refused((B, A)) == ["nccl"]
    assert failures.refused((A, B, C)) == []


def test_refusals_are_bounded() -> None:
    failures = Failures()
    for number in range(100):
        failures.learn(GROUP, B, failed(refused=f"library {number}"))
    assert failures.refused((A, B)) == [f"library {number}" for number in range(84, 100)]
