from typing import Any

import pytest

from ictp2p.demo.narrator import Narrator, summary
from ictp2p.demo.report import Record


def narrator() -> Narrator:
    return Narrator(100.0, {"a" * 32: "oslo/0", "b" * 32: "oslo/1"})


def tell(teller: Narrator, kind: str, **fields: Any) -> str | None:
    return teller.tell("oslo/0", "oslo", {"kind": kind, "time": 112.34, **fields})


def test_every_line_begins_with_the_time() -> None:
    line = tell(narrator(), "drained")
    assert line == "  12.3 s  oslo/0 has drained"


def test_what_all_workers_report_is_told_once() -> None:
    teller = narrator()
    claim = {"cluster": "oslo", "term": 2, "leader": "b" * 32}
    assert tell(teller, "leader", **claim) == "  12.3 s  oslo is led by oslo/1, term 2"
    assert tell(teller, "leader", **claim) is None
    assert tell(teller, "leader", **{**claim, "term": 3}) is not None


def test_a_round_tells_who_when_how_much_and_how() -> None:
    event = {
        "round": 4, "attempt": 2, "participants": ["tokyo", "oslo"], "seconds": 0.614, "bytes_sent": 4_400_000,
        "bytes_received": 4_300_000, "plan": "star", "reason": "fastest", "version": 5, "digest": "d",
    }  # fmt: skip
    assert tell(narrator(), "round_committed", **event) == (
        "  12.3 s  round 4 (attempt 2) committed by oslo, tokyo; 0.61 s, 4.4 MB out and 4.3 MB in at oslo, star"
    )


def test_routes_are_told_when_their_next_hop_changes() -> None:
    teller = narrator()
    hops = ["tokyo", "tokyo", "zurich", None]
    told = [tell(teller, "route", destination="tokyo", next_hop=hop, traffic_class=0) for hop in hops]
    assert [line and line[10:] for line in told] == [
        "route oslo -> tokyo: direct",
        None,
        "route oslo -> tokyo: through zurich",
        "route oslo -> tokyo: none",
    ]


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("ready", {"address": "127.0.0.1:7001", "peer": "a" * 32}, "oslo/0 listens on 127.0.0.1:7001 as aaaaaaaa"),
        ("member", {"scope": "cluster", "member": "b" * 32, "status": "SUSPECT"}, "oslo/1 is suspect"),
        ("member", {"scope": "mesh", "member": "oslo", "status": "LEFT"}, "oslo has left"),
        ("round_aborted", {"round": 3, "attempt": 1, "reason": "zurich died"}, "round 3 aborted: zurich died"),
        ("state_fetched", {"version": 7, "seconds": 0.8, "bytes": 6_700_000, "providers": ["x"]},
         "oslo/0 fetched version 7: 6.7 MB from 1 peer in 0.80 s"),
        ("warning", {"text": "slow disk"}, "oslo/0 warns: slow disk"),
    ],
)  # fmt: skip
def test_kinds_worth_a_line(kind: str, fields: dict[str, Any], words: str) -> None:
    line = tell(narrator(), kind, **fields)
    assert line is not None
    assert line.endswith(words)


@pytest.mark.parametrize("kind", ["step", "version", "reduce_progress", "life", "something new"])
def test_kinds_that_are_not(kind: str) -> None:
    assert tell(narrator(), kind) is None


def test_a_new_member_is_told_by_its_ready_line_alone() -> None:
    assert tell(narrator(), "member", scope="cluster", member="b" * 32, status="ALIVE") is None


def test_the_summary_has_the_newest_of_everything() -> None:
    record = Record(0.0)
    assert summary(record) == "version 0  0 MB sent"
    for cluster, loss in (("oslo", 5.0), ("tokyo", 4.0), ("oslo", 3.0)):
        record.observe(f"{cluster}/0", cluster, {"kind": "step", "time": 1.0, "step": 5, "loss": loss})
    record.observe("oslo/0", "oslo", {"kind": "validation", "time": 1.0, "version": 2, "loss": 3.25})
    record.observe("oslo/0", "oslo", {"kind": "version", "time": 1.0, "version": 2, "digest": "d"})
    assert summary(record) == "loss 3.50  validation 3.25  version 2  0 MB sent"
