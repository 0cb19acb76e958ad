import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.demo.report import Record

WORKERS = [("oslo/0", "oslo"), ("oslo/1", "oslo"), ("tokyo/0", "tokyo")]


def committed(round_: int, time: float, **changes: Any) -> dict[str, Any]:
    event = {
        "kind": "round_committed", "time": time, "round": round_, "attempt": 1, "participants": ["tokyo", "oslo"],
        "seconds": 0.5, "bytes_sent": 100, "bytes_received": 90, "plan": "star", "reason": "fastest",
        "version": round_ + 1, "digest": "d",
    }  # fmt: skip
    return {**event, **changes}


def record(*events: tuple[str, dict[str, Any]]) -> Record:
    made = Record(0.0)
    for worker, event in events:
        made.observe(worker, worker.partition("/")[0], {"time": 1.0, **event})
    return made


def version(number: int, digest: str) -> dict[str, Any]:
    return {"kind": "version", "version": number, "digest": digest}


def stopped(number: int, digest: str, loss: float = 2.0) -> dict[str, Any]:
    return {"kind": "stopped", "version": number, "digest": digest, "validation_loss": loss, "stats": {}}


START = ("oslo/0", {"kind": "validation", "version": 1, "loss": 5.5})


def test_reports_of_one_round_are_one_row() -> None:
    made = record(("oslo/0", committed(3, 10.0)), ("tokyo/0", committed(3, 9.5, seconds=0.7, bytes_sent=40)))
    (row,) = made.as_json()["rounds"]
    assert row == {
        "round": 3, "attempt": 1, "participants": ("oslo", "tokyo"), "outcome": "committed", "seconds": 0.7,
        "bytes": 140, "plan": "star", "reason": "fastest", "version": 4, "time": 9.5,
    }  # fmt: skip


@given(st.permutations([(w, c, r) for w, c in WORKERS for r in (1, 2, 3)]), st.lists(st.integers(0, 8), max_size=4))
def test_neither_order_nor_repetition_changes_the_rounds(reports: list[tuple[str, str, int]], again: list[int]) -> None:
    def fold(reported: list[tuple[str, str, int]]) -> Any:
        made = Record(0.0)
        for worker, cluster, round_ in reported:
            made.observe(worker, cluster, committed(round_, round_ + len(worker + cluster) / 100))
        return made.as_json()["rounds"]

    assert fold([*reports, *(reports[i] for i in again)]) == fold(sorted(reports))


def test_an_aborted_attempt_and_its_retry_are_two_rows() -> None:
    aborted = {
        "kind": "round_aborted",
        "round": 3,
        "attempt": 1,
        "participants": ["oslo"],
        "seconds": 1.0,
        "reason": "x",
    }
    made = record(("oslo/0", aborted), ("oslo/0", committed(3, 2.0, attempt=2)))
    assert [(r["attempt"], r["outcome"]) for r in made.as_json()["rounds"]] == [(1, "aborted"), (2, "committed")]
    assert [r.attempt for r in made.committed] == [2]


def test_an_opened_round_that_nobody_closed_stays_open() -> None:
    opened = {"kind": "round_opened", "round": 1, "attempt": 1, "participants": ["b", "a"], "plan": "p", "reason": "r"}
    (row,) = record(("oslo/0", opened)).as_json()["rounds"]
    assert (row["outcome"], row["participants"], row["plan"]) == ("open", ("a", "b"), "p")


def test_leaders_follow_the_highest_term_whatever_is_heard_last() -> None:
    claims = [
        ("oslo/0", {"kind": "leader", "cluster": "oslo", "term": term, "leader": leader, "time": time})
        for term, leader, time in ((1, "a", 1.0), (2, "b", 2.0), (1, "a", 3.0), (2, "b", 4.0))
    ]
    made = record(*claims)
    assert made.leaders == {"oslo": (2, "b")}
    assert made.elections == [(1.0, "oslo", "a"), (2.0, "oslo", "b")]


def test_a_right_run_has_no_failures() -> None:
    made = record(START, *((w, version(7, "d")) for w, _ in WORKERS), *((w, stopped(7, "d")) for w, _ in WORKERS))
    assert made.failures({w for w, _ in WORKERS}) == []
    report = made.as_json()
    assert report["final_digests"] == {w: "d" for w, _ in WORKERS}
    assert (report["start_validation_loss"], report["final_validation_loss"]) == (5.5, 2.0)
    json.dumps(report)


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        ([("oslo/0", stopped(7, "d"))], "worker oslo/1 reported no final digest"),
        ([("oslo/0", stopped(7, "d")), ("oslo/1", stopped(7, "e"))],
         "final digests differ: d at version 7 at oslo/0; e at version 7 at oslo/1"),
        ([("oslo/0", stopped(7, "d")), ("oslo/1", stopped(8, "d"))],
         "final digests differ: d at version 7 at oslo/0; d at version 8 at oslo/1"),
        ([("oslo/0", version(3, "d")), ("oslo/1", version(3, "e"))],
         "version 3 has 2 digests: d at oslo/0; e at oslo/1"),
        ([("oslo/0", stopped(7, "d")), ("oslo/1", stopped(7, "d", 4.4))],
         "validation loss went from 5.500 to 4.400, not below 0.8 of its start"),
        ([("oslo/0", stopped(7, "d")), ("oslo/1", stopped(7, "d", math.nan))],
         "validation loss went from 5.500 to nan, not below 0.8 of its start"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(said: list[tuple[str, dict[str, Any]]], failure: str) -> None:
    assert failure in record(START, *said).failures({"oslo/0", "oslo/1"})


def test_a_run_without_validation_is_not_right() -> None:
    made = record(("oslo/0", stopped(7, "d")))
    assert made.failures({"oslo/0"}) == ["the validation loss was not measured"]
